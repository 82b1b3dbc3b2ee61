"""From the structure of a step and its durations to programs: what the engine plays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainsim.contracts.exact import tick_for
from trainsim.contracts.groups import Group, Peers
from trainsim.contracts.instructions import Instruction, Kernel, Meet, Program, Signal, Task, Template, Wait
from trainsim.contracts.system import Communicator, Floats, Ints, Pattern, System
from trainsim.contracts.trace import Trace
from trainsim.diagnosis.operations import (
    BACKWARD,
    BACKWARD_RECEIVE,
    BACKWARD_SEND,
    CLIP,
    COLLECTOR,
    FORWARD,
    FORWARD_RECEIVE,
    FORWARD_SEND,
    TYPES,
    UPDATE,
)
from trainsim.diagnosis.solver import SolvedSteps, rounded
from trainsim.diagnosis.structure import StepStructure
from trainsim.engine import run
from trainsim.fold import unfolded

MEETS = "all there"
"""The operation by which members of a meeting wait for each other; it takes no time."""
KIND = {
    FORWARD: "forward", BACKWARD: "backward", COLLECTOR: "host", UPDATE: "optimizer", CLIP: "optimizer",
    **dict.fromkeys((FORWARD_SEND, FORWARD_RECEIVE, BACKWARD_SEND, BACKWARD_RECEIVE), "pp"),
}  # fmt: skip
"""The kind of span of each type; all others are of data parallelism."""
WORK = {FORWARD: "F", BACKWARD: "B"}


@dataclass(frozen=True, kw_only=True, eq=False)
class PlayedStep:
    """A step as the engine played it: its trace, in which a worker is a rank, and the times of its operations."""

    structure: StepStructure
    trace: Trace
    start: Floats
    end: Floats

    @property
    def seconds(self) -> float:
        """How long the step took."""
        return float(self.end.max(initial=0.0))


def play(structure: StepStructure, durations: Floats) -> PlayedStep:
    """Play one step on the engine: *durations* (seconds) of its operations, of communications what they take after the
    last of their meeting has posted. Raises Deadlock for operations that wait for each other."""
    system = lower(structure, rounded(durations))
    trace = run(unfolded(system), tick=tick_for(float(durations.sum())))
    start, end = np.zeros(len(structure)), np.zeros(len(structure))
    for (worker, stream), operations in _by_stream(structure).items():
        spans = trace.spans(worker, stream)
        kernels = np.array([label.stream != MEETS for label in trace.labels], bool)[spans.label]
        start[operations], end[operations] = spans.start[kernels], spans.end[kernels]
    return PlayedStep(structure=structure, trace=trace, start=start, end=end)


def lower(structure: StepStructure, durations: Floats) -> System:
    """The system of one step: a rank per worker, a chain per stream; what meets takes no time to do so, and each member
    takes its own time afterwards."""
    members = np.bincount(structure.meeting)
    communicators = _communicators(structure, members)
    heard = _heard(structure)
    chains: dict[int, dict[str, tuple[Task, ...]]] = defaultdict(dict)
    for (worker, stream), operations in _by_stream(structure).items():
        chains[worker][stream] = tuple(
            _task(structure, k, float(durations[k]), meets=members[structure.meeting[k]] > 1, heard=heard[k])
            for k in operations
        )
    nobody = np.full(len(structure.workers), -1, np.int64)
    return System(
        programs=tuple(Program(chains=chains[k], stage=place[2]) for k, place in enumerate(structure.workers)),
        program_of=np.arange(len(structure.workers), dtype=np.int64), slow=np.ones(len(structure.workers)),
        communicators=communicators, resources=0, sm=nobody, hbm=nobody, owner=np.zeros(0, np.int64),
    )  # fmt: skip


def _task(structure: StepStructure, k: int, seconds: float, *, meets: bool, heard: bool) -> Task:
    """One operation: what it waits for, its meeting, its time, and, where another stream waits for it, a signal."""
    name = TYPES[structure.type[k]]
    stream, work = structure.streams[k], WORK.get(name, "update" if structure.streams[k] == "compute" else "")
    microbatch = max(int(structure.microbatch[k]), 0)
    return Task(
        Template(
            work, max(int(structure.chunk[k]), 0), tuple(_body(structure, k, name, stream, seconds, meets, heard))
        ),
        microbatch,
    )


def _body(
    structure: StepStructure, k: int, name: str, stream: str, seconds: float, meets: bool, heard: bool
) -> Iterator[Instruction]:
    for other in structure.waits[k]:
        if structure.streams[other] != stream:
            yield Wait(str(other), 0)
    kind = KIND.get(name, "dp")
    if meets:
        yield Meet(name, kind, _group(structure, k), MEETS, 0.0, stream=MEETS)
    yield Kernel(name, kind, seconds, sm=0.0, stream="compute" if stream == "compute" else kind)
    if heard:
        yield Signal(str(k), 0)


def _heard(structure: StepStructure) -> list[bool]:
    """Whether another stream waits for an operation."""
    out = [False] * len(structure)
    for k, waits in enumerate(structure.waits):
        for other in waits:
            out[other] |= structure.streams[other] != structure.streams[k]
    return out


def _by_stream(structure: StepStructure) -> dict[tuple[int, str], list[int]]:
    out: dict[tuple[int, str], list[int]] = defaultdict(list)
    for k, worker in enumerate(structure.worker.tolist()):
        out[worker, structure.streams[k]].append(k)
    return out


def _group(structure: StepStructure, k: int) -> Group:
    """The communicator of a meeting: each label has its own, so that no order of posting matters."""
    return Group(tuple(map(str, structure.meetings[structure.meeting[k]].label)))


def _communicators(structure: StepStructure, members: Ints) -> dict[Peers, Communicator]:
    ranks = len(structure.workers)
    labels: dict[tuple[str | int, ...], list[int]] = defaultdict(list)
    for number, meeting in enumerate(structure.meetings):
        if members[number] > 1:
            labels[meeting.label].append(number)
    of_meeting: Sequence[Ints] = np.split(np.argsort(structure.meeting, kind="stable"), np.cumsum(members)[:-1])
    out: dict[Peers, Communicator] = {}
    for label, numbers in labels.items():
        group_of = np.full(ranks, -1, np.int64)
        for group, number in enumerate(numbers):
            group_of[structure.worker[of_meeting[number]]] = group
        out[Group(tuple(map(str, label)))] = Communicator(
            group_of=(group_of,), groups=len(numbers), patterns={MEETS: _at_once(len(numbers))}
        )
    return out


def _at_once(groups: int) -> Pattern:
    none, nothing, one = np.zeros(0, np.int64), np.zeros(groups), np.ones(groups)
    return Pattern(
        factor=nothing, bandwidth=one, latency=nothing, ramp=nothing, chain=nothing, chain_bytes=nothing,
        use_group=none, use_resource=none, use_amount=np.zeros(0), use_hold=np.zeros(0, bool),
    )  # fmt: skip


def agree(played: PlayedStep, solved: SolvedSteps, column: int) -> bool:
    """Whether the engine and the solver found the same times, to the last bit."""
    return bool((played.start == solved.start[:, column]).all() and (played.end == solved.end[:, column]).all())
