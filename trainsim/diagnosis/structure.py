"""
What waits for what in a step: rebuilt from the order of the operations of each worker.

* A worker's passes (and what its garbage collector takes) run in the order in which they started; each kind of send and
  receive has a stream of its own, and gathers of parameters share one with reductions of gradients.
* A send waits for its pass, a pass for its receive, and a receive is posted after the pass of the same direction before
  the one that it feeds; the first backward one after the forward two before the first backward.
* Both ends of a message, replicas in a collective of parameters or gradients, the first and the last stage for tied
  embeddings, and all workers for the norm of the gradients are *meetings*: nobody goes on before all have come.
* The first forward of a chunk waits for its parameters. A step ends with the gradients of norms and embeddings,
  reductions (unless they run beside the backwards: then each waits for the last backward of its chunk), the norm, and
  the optimizer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from trainsim.diagnosis.matching import OperationTimes, matched
from trainsim.diagnosis.operations import (
    BACKWARD,
    BACKWARD_RECEIVE,
    BACKWARD_SEND,
    CLIP,
    COLLECTOR,
    EMBEDDING,
    FORWARD,
    FORWARD_RECEIVE,
    FORWARD_SEND,
    GATHER,
    NORMS,
    REDUCE,
    SEPARATE,
    TYPES,
    UPDATE,
    Ints,
    JobShape,
)
from trainsim.errors import InvalidData

ENDING = (NORMS, SEPARATE, EMBEDDING, CLIP, UPDATE)
"""What a worker does after its last backward, in this order."""
STREAMS = {
    **dict.fromkeys((FORWARD, BACKWARD, COLLECTOR, *ENDING), "compute"),
    **{name: name for name in (FORWARD_SEND, FORWARD_RECEIVE, BACKWARD_SEND, BACKWARD_RECEIVE)},
    **dict.fromkeys((GATHER, REDUCE), "dp"),
}
"""The stream of each type of operation."""


class OperationGroup(NamedTuple):
    """Operations that end only after all of them have started: ``place`` tells those of one ``label`` apart."""

    label: tuple[str | int, ...]
    place: tuple[int, ...]


class Rules(NamedTuple):
    """What is so in all steps of a job: whether reductions run beside the backwards, and the order of the end."""

    overlapped: bool
    ending: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepStructure:
    """The operations of a step and what they wait for; columns are those of an ``OperationTable``.

    Operations stand by worker and stream, in the order of each. ``waits[k]`` are operations of the same worker that are
    over before k can be posted; ``meeting[k]`` is the place in ``meetings`` of the one that k takes part in.
    """

    workers: tuple[tuple[int, int, int], ...]
    worker: Ints
    type: Ints
    chunk: Ints
    model_chunk: Ints
    microbatch: Ints
    streams: tuple[str, ...]
    waits: tuple[tuple[int, ...], ...]
    meeting: Ints
    meetings: tuple[OperationGroup, ...]

    def __len__(self) -> int:
        return len(self.type)

    @property
    def dp_rank(self) -> Ints:
        return self._places[0][self.worker]

    @property
    def stage(self) -> Ints:
        return self._places[2][self.worker]

    @property
    def _places(self) -> tuple[Ints, Ints, Ints]:
        dp_rank, lane, stage = np.array(self.workers, np.int64).T
        return dp_rank, lane, stage


class StepColumns(NamedTuple):
    """What tells two steps apart, but for times: a place per operation, by worker and stream, in the order of each."""

    worker: Ints
    type: Ints
    chunk: Ints
    model_chunk: Ints
    microbatch: Ints


def structure_of(
    columns: StepColumns,
    workers: Sequence[tuple[int, int, int]],
    *,
    shape: JobShape,
    rules: Rules,
    times: OperationTimes,
) -> StepStructure:
    """The structure of a step; *times* are those of one such step. Raises InvalidData for one in which sends or
    receives are missing."""
    types = [TYPES[k] for k in columns.type.tolist()]
    building = _Building(columns, types, tuple(workers), shape=shape, rules=rules, times=times)
    for number in np.unique(columns.worker).tolist():
        building.add(number, np.flatnonzero(columns.worker == number).tolist())
    known = {meeting: k for k, meeting in enumerate(dict.fromkeys(building.meeting))}
    return StepStructure(
        workers=tuple(workers), worker=columns.worker, type=columns.type, chunk=columns.chunk,
        model_chunk=columns.model_chunk, microbatch=columns.microbatch, streams=tuple(STREAMS[t] for t in types),
        waits=tuple(tuple(dict.fromkeys(some)) for some in building.waits),
        meeting=np.array([known[meeting] for meeting in building.meeting], np.int64), meetings=tuple(known),
    )  # fmt: skip


class _Building:
    """Collects, worker by worker, what each operation waits for and which meeting it takes part in."""

    def __init__(
        self, columns: StepColumns, types: list[str], workers: tuple[tuple[int, int, int], ...], *, shape: JobShape,
        rules: Rules, times: OperationTimes,
    ):  # fmt: skip
        self.types, self.workers, self.shape, self.rules, self.times = types, workers, shape, rules, times
        self.chunk, self.model_chunk = columns.chunk.tolist(), columns.model_chunk.tolist()
        self.microbatch = columns.microbatch.tolist()
        self.waits: list[list[int]] = [[] for _ in types]
        self.meeting: list[OperationGroup] = [OperationGroup(("alone",), (k,)) for k in range(len(types))]

    def add(self, number: int, operations: list[int]) -> None:
        """The operations of one worker, by stream and in the order of each."""
        by_type: dict[str, list[int]] = defaultdict(list)
        for k in operations:
            by_type[self.types[k]].append(k)
        for before, after in pairwise(operations):
            if STREAMS[self.types[before]] == STREAMS[self.types[after]]:
                self.waits[after].append(before)
        place = self.workers[number]
        forwards, backwards = by_type[FORWARD], by_type[BACKWARD]
        self._sends(by_type[FORWARD_SEND], forwards, place, 1)
        self._sends(by_type[BACKWARD_SEND], backwards, place, -1)
        self._receives(by_type[FORWARD_RECEIVE], forwards, place, -1, None)
        warm = [k for k in forwards if backwards and k < backwards[0]]
        self._receives(by_type[BACKWARD_RECEIVE], backwards, place, 1, warm[-2] if len(warm) > 1 else None)
        self._parameters(by_type)
        self._end(by_type)
        self._collectives(by_type, place)

    def _sends(self, sends: list[int], passes: list[int], place: tuple[int, int, int], to: int) -> None:
        for send, its in self._matched(sends, passes, place, to):
            self.waits[send].append(its)
            self._message(send, its, place, to, self.model_chunk[its])

    def _receives(
        self, receives: list[int], passes: list[int], place: tuple[int, int, int], of: int, first: int | None
    ) -> None:
        """A receive waits for the pass before the one that it feeds, the first one for the pass *first*."""
        before = dict(zip(passes, [first, *passes], strict=False))
        for receive, its in self._matched(receives, passes, place, of):
            self.waits[its].append(receive)
            if (earlier := before[its]) is not None:
                self.waits[receive].append(earlier)
            self._message(receive, its, place, -of, self.model_chunk[its] + of)

    def _message(self, operation: int, its: int, place: tuple[int, int, int], way: int, source: int) -> None:
        """The two ends of a message that goes *way* (1: forwards) from chunk *source* of the model meet, if it is one
        between two chunks."""
        if 0 <= source < self.shape.chunks and 0 <= source + way < self.shape.chunks:
            label = "forward" if way > 0 else "backward", source, self.microbatch[its]
            self.meeting[operation] = OperationGroup(label, place[:2])

    def _matched(
        self, messages: list[int], passes: list[int], place: tuple[int, int, int], neighbour: int
    ) -> list[tuple[int, int]]:
        """The pass of each send or receive. Raises InvalidData where some of either are missing."""
        real = [k for k in passes if 0 <= self.model_chunk[k] + neighbour < self.shape.chunks]
        received = bool(messages) and self.types[messages[0]] in (FORWARD_RECEIVE, BACKWARD_RECEIVE)
        pairs = matched(messages, passes, real, times=self.times, received=received)
        if pairs is None:
            raise InvalidData(
                f"dp_rank {place[0]}, stage {place[2]}: {len(messages)} of {self.types[messages[0]]}, but its "
                f"{len(passes)} passes have {len(real)} of them" if messages else
                f"dp_rank {place[0]}, stage {place[2]}: sends or receives of {len(real)} passes are missing"
            )  # fmt: skip
        return pairs

    def _parameters(self, by_type: dict[str, list[int]]) -> None:
        """The first forward of a chunk waits for its last gather; where no gather names a chunk, the first for all."""
        for gather in by_type[GATHER]:
            fed = [k for k in by_type[FORWARD] if self.chunk[gather] < 0 or self.chunk[k] == self.chunk[gather]]
            if fed:
                self.waits[fed[0]].append(gather)

    def _end(self, by_type: dict[str, list[int]]) -> None:
        """What reductions wait for, and what waits for the last of them."""
        reductions = by_type[REDUCE]
        if not reductions:
            return
        joining = [k for name in (CLIP, UPDATE) for k in by_type[name]][:1]
        for k in joining:
            self.waits[k].append(reductions[-1])
        ends = [k for name in (FORWARD, BACKWARD, COLLECTOR, *ENDING[:3]) for k in by_type[name]]
        if not self.rules.overlapped:
            self.waits[reductions[0]] += [max(ends)] if ends else []
            return
        for chunk in dict.fromkeys(self.chunk[k] for k in reductions):
            its = [k for k in by_type[BACKWARD] if chunk < 0 or self.chunk[k] == chunk]
            first = next(k for k in reductions if self.chunk[k] == chunk)
            self.waits[first] += its[-1:]

    def _collectives(self, by_type: dict[str, list[int]], place: tuple[int, int, int]) -> None:
        """Who else takes part: replicas of the stage, both ends of the pipeline, or everybody."""
        replica, stage = place[:2], place[2:]
        where = {GATHER: stage, REDUCE: stage, SEPARATE: stage, EMBEDDING: replica, CLIP: ()}
        for name, others in where.items():
            for turn, k in enumerate(by_type[name]):
                self.meeting[k] = OperationGroup((name, turn), others)
