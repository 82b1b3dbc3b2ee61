"""Files of the PyTorch profiler as one measured trace: ranks, steps, clocks, and then a chain after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainsim.contracts.groups import Messages
from trainsim.contracts.measured_trace import MeasuredTrace
from trainsim.errors import ScenarioError, shorten
from trainsim.measured.activities import EXTENSIONS, GpuActivity, activities_of, rank_of_name
from trainsim.measured.chains import ChainMaker
from trainsim.measured.clocks import Clocks, aligned, meetings, messages, shifted
from trainsim.measured.marked_steps import ChosenSteps, StepMarks, chosen_steps
from trainsim.measured.passes import UPDATE, KernelPass, passes_of
from trainsim.measured.process_groups import ProcessGroups
from trainsim.measured.reader import TraceRequest
from trainsim.measured.spans import MeasuredSpan, trace_of_spans
from trainsim.measured.trace_events import NANOSECOND, TraceFile
from trainsim.units import format_number_of, format_time

MUCH_CUT = 0.001
"""Part of the step from which on kernels that overlap on one chain are worth a warning."""
MUCH_APART = 0.01
"""Part of the step by which ends of one collective may differ."""
MUCH_IDLE = 0.99
"""Part of what is read from which on a single gap is worth a warning: next to it all else is nothing."""


class ProfiledFile(NamedTuple):
    """What is kept of a file: activities by rank, steps, what it says of its job, its GPU, why it ends early, and how
    many of its events have no usable times."""

    shown: str
    by_rank: dict[int, list[GpuActivity]]
    marks: StepMarks
    distributed: Mapping[str, Any]
    gpu: str
    fault: str
    damaged: int


def profiled(trace: TraceFile) -> ProfiledFile:
    """What is kept of *trace*."""
    found = activities_of(trace)
    return ProfiledFile(
        trace.shown, found.by_rank, found.marks, trace.distributed, trace.gpu, trace.fault, trace.damaged
    )


def measured(files: Sequence[ProfiledFile], request: TraceRequest) -> MeasuredTrace:
    """One trace of *files*. Raises ScenarioError for two of one rank, and for a step that they do not hold."""
    by_rank = _ranks(files)
    chosen = _chosen(files, by_rank, request)
    inside = {rank: _inside(own, chosen) for rank, own in by_rank.items()}
    common = list(meetings(inside))
    clocks = aligned(inside, common)
    begun, arrivals = _begun(common, clocks), dict[int, list[int]]()
    for message in messages(inside, clocks.shift):
        arrivals.setdefault(message.target, []).append(message.end_ns)
        begun |= {} if message.received is None else {id(message.received): message.begin_ns}
    groups = ProcessGroups(file.distributed for file in files)
    spans, carriers, cut = list[MeasuredSpan](), dict[str, Messages](), 0
    ranks = tuple(sorted(inside))
    for place, rank in enumerate(ranks):
        by = clocks.shift[rank]
        own = [shifted(activity, by) for activity in inside[rank]]
        begins = {id(new): begun[id(old)] for new, old in zip(own, inside[rank], strict=True) if id(old) in begun}
        end = _end(by_rank[rank], inside[rank], chosen) + by
        made = ChainMaker(groups, begins, arrivals).chains(place, rank, own, _passes(own), end)
        spans += made.spans
        carriers |= made.carriers
        cut += made.cut_ns
    trace = trace_of_spans(spans, stages=[groups.stage(rank) for rank in ranks], messages=carriers, observed=True)
    return MeasuredTrace(
        name=request.name or name_of([file.shown for file in files]),
        trace=trace,
        files=tuple(file.shown for file in files),
        rank_numbers=ranks,
        part=chosen.part,
        gpu=next((file.gpu for file in files if file.gpu), ""),
        marked=chosen.marked,
        shifts=tuple(clocks.shift[rank] * NANOSECOND for rank in ranks),
        warnings=(
            *_faults(files),
            *_gaps(inside, clocks.shift),
            *_doubts(clocks, len(common), cut * NANOSECOND, trace.duration),
        ),
    )


def name_of(shown: Sequence[str]) -> str:
    """What files are called together.

    >>> name_of(["runs/step_rank0.json.gz", "runs/step_rank1.json.gz"]), name_of(["runs/trace.json"])
    ('step_rank0 and 1 more', 'trace')
    """
    first = EXTENSIONS.sub("", Path(shown[0]).name)
    return first if len(shown) == 1 else f"{first} and {len(shown) - 1} more"


def _ranks(files: Sequence[ProfiledFile]) -> dict[int, list[GpuActivity]]:
    """The activities of each rank: what a file says it is, or, where several say the same, what it is called."""
    owner: dict[int, str] = {}
    out: dict[int, list[GpuActivity]] = {}
    for file in files:
        single = len(file.by_rank) == 1
        for told, own in file.by_rank.items():
            rank = told
            if rank in out and single:
                called = rank_of_name(file.shown)
                rank = called if called is not None and called not in out else told
            if rank in out:
                raise ScenarioError(
                    f"{owner[rank]} and {file.shown} are both from rank {rank}; give each rank once, or put its number "
                    "into the name of its file (rank0.json, rank1.json)"
                )
            owner[rank], out[rank] = file.shown, sorted(own, key=lambda one: (one.begin_ns, one.end_ns))
    return out


def _chosen(
    files: Sequence[ProfiledFile], by_rank: Mapping[int, Sequence[GpuActivity]], request: TraceRequest
) -> ChosenSteps:
    lengths: dict[int, list[float]] = {}
    for file in files:
        for number, seconds in file.marks.lengths().items():
            lengths.setdefault(number, []).append(seconds)
    busy = [{activity.step for activity in own if activity.step >= 0} for own in by_rank.values()]
    whole = set.intersection(*busy)
    return chosen_steps({k: sum(v) / len(v) for k, v in lengths.items()}, sorted(whole), request)


def _inside(own: Sequence[GpuActivity], chosen: ChosenSteps) -> list[GpuActivity]:
    return [a for a in own if chosen.numbers is None or a.step in chosen.numbers]


def _end(every: Sequence[GpuActivity], inside: Sequence[GpuActivity], chosen: ChosenSteps) -> int:
    """When the last step of a rank is over: when its next one begins on the GPU; else with what it does last, or as
    long after its begin as it takes on the host."""
    last = max(activity.end_ns for activity in inside)
    if chosen.numbers is None:
        return last
    number = chosen.numbers[-1]
    later = [activity.begin_ns for activity in every if activity.step > number]
    if later:
        return max(min(later), last)
    begin = min(activity.begin_ns for activity in inside if activity.step == number)
    seconds = next((step.seconds for step in chosen.marked if step.number == number), 0.0)
    return max(last, begin + round(seconds / NANOSECOND))


def _passes(own: Sequence[GpuActivity]) -> list[KernelPass]:
    """The pass of each activity, step by step."""
    steps: dict[int, list[int]] = {}
    for k, activity in enumerate(own):
        steps.setdefault(activity.step, []).append(k)
    found: dict[int, KernelPass] = {}
    first = 0
    for ordinal, places in enumerate(steps.values()):
        passes = passes_of([own[k] for k in places], first=first, step=ordinal)
        found |= zip(places, passes, strict=True)
        first = 1 + max((one.microbatch for one in passes if one.work != UPDATE), default=first)
    return [found[k] for k in range(len(own))]


def _begun(common: Sequence[Any], clocks: Clocks) -> dict[int, int]:
    """When a collective really began, by the identity of each of its activities: with the last of its ranks, where all
    of them are here."""
    out: dict[int, int] = {}
    for meeting in common:
        record = meeting[0][1].record
        members = len(record.ranks) or record.size
        if members == len(meeting):
            last = max(activity.begin_ns + clocks.shift[rank] for rank, activity in meeting)
            out |= {id(activity): last for _, activity in meeting}
    return out


def _faults(files: Sequence[ProfiledFile]) -> list[str]:
    cut = [f"{file.shown} ends early ({file.fault}): everything before that is read" for file in files if file.fault]
    return cut + [
        f"{file.shown}: {format_number_of(file.damaged, 'event')} without a usable ts or dur, left out"
        for file in files
        if file.damaged
    ]


def _gaps(by_rank: Mapping[int, Sequence[GpuActivity]], shift: Mapping[int, int]) -> list[str]:
    """The longest time in which no GPU runs anything, if all else is nothing next to it: an event with a wrong time
    makes one."""
    origin = min(own[0].begin_ns + shift[rank] for rank, own in by_rank.items())
    begin, end = (
        np.array([getattr(one, edge) + shift[rank] - origin for rank, own in by_rank.items() for one in own], float)
        for edge in ("begin_ns", "end_ns")
    )
    order = np.argsort(begin, kind="stable")
    over = np.maximum.accumulate(end[order])
    gap = np.append(begin[order][1:] - over[:-1], 0.0)
    k = int(np.argmax(gap))
    if gap[k] <= MUCH_IDLE * over[-1]:
        return []
    names = [f"{shorten(one.name)} on rank {rank}" for rank, own in by_rank.items() for one in own]
    before, after = order[int(np.argmax(end[order[: k + 1]]))], order[k + 1]
    return [
        f"Nothing runs for {format_time(gap[k] * NANOSECOND)}, nearly all of what is read, between {names[before]} and "
        f"{names[after]}: is the ts of one of them wrong?"
    ]


def _doubts(clocks: Clocks, common: int, cut: float, duration: float) -> list[str]:
    """What to know of clocks and of what was cut."""
    out = []
    moved = max((abs(by) for by in clocks.shift.values()), default=0) * NANOSECOND
    apart = clocks.apart_ns * NANOSECOND
    if common and moved:
        out.append(
            f"Clocks were shifted by up to {format_time(moved)}, so that {common} collectives end at the same time "
            f"on all their ranks; their ends still differ by a median of {format_time(apart)}."
        )
    if common and apart > MUCH_APART * duration:
        out.append(
            "The same collectives end at very different times: are these files from one run, and from the same step?"
        )
    if clocks.alone:
        ranks = ", ".join(map(str, clocks.alone))
        out.append(f"Ranks {ranks} share no collective with the others: their clocks are left as in their files.")
    if cut > MUCH_CUT * duration:
        out.append(f"Kernels that overlap on one stream were trimmed by {format_time(cut)}.")
    return out
