"""Which pass of a step each kernel belongs to, told from the phases in which kernels were launched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from trainsim.measured.activities import GpuActivity

SHORT = 0.01
"""Part of the longest stretch of a phase: shorter ones are kernels on the side, not passes of their own."""
WORK = {"forward": "F", "backward": "B", "recompute": "B"}
UPDATE = "update"


class KernelPass(NamedTuple):
    """A pass of the schedule (``F``, ``B``) or the update, and its microbatch, counted in the step."""

    work: str
    microbatch: int


class _PhaseStretch(NamedTuple):
    """Activities in a row of one phase: places *first* to *last*, exclusive, and the seconds of their kernels."""

    work: str
    first: int
    last: int
    length: int


def passes_of(activities: Sequence[GpuActivity], *, first: int = 0, step: int = 0) -> list[KernelPass]:
    """The pass of each activity, by start, of one *step*, whose microbatches are counted from *first* on. What follows
    the last backward, if it updates parameters, is the update; what has no phase belongs to the pass it lies in."""
    works = [WORK.get(activity.kind, "") for activity in activities]
    updates = [k for k, activity in enumerate(activities) if activity.kind == "optimizer"]
    last = max((k for k, work in enumerate(works) if work == "B"), default=-1)
    begin = next((k for k in updates if k > last), len(activities)) if updates else len(activities)
    stretches = _stretches(activities[:begin], works[:begin])
    out: list[KernelPass] = []
    count = {"F": first, "B": first}
    for stretch in stretches:
        out += [KernelPass(stretch.work, count[stretch.work])] * (stretch.last - stretch.first)
        count[stretch.work] += 1
    out += [KernelPass("F", first)] * (begin - len(out))
    return [*out, *[KernelPass(UPDATE, step)] * (len(activities) - begin)]


def _stretches(activities: Sequence[GpuActivity], works: Sequence[str]) -> list[_PhaseStretch]:
    """Passes without a hole: phases in a row, short ones joined with what is around them."""
    known = [k for k, work in enumerate(works) if work]
    raw = []
    for work, places in groupby(known, key=lambda k: works[k]):
        inside = list(places)
        length = sum(activities[k].end_ns - activities[k].begin_ns for k in inside)
        raw.append(_PhaseStretch(work, inside[0], inside[-1] + 1, length))
    least = SHORT * max((stretch.length for stretch in raw), default=0)
    joined: list[_PhaseStretch] = []
    for stretch in raw:
        if joined and (stretch.work == joined[-1].work or stretch.length < least):
            before = joined[-1]
            joined[-1] = before._replace(last=stretch.last, length=before.length + stretch.length)
        elif joined and joined[-1].length < least:
            joined[-1] = stretch._replace(first=joined[-1].first, length=joined[-1].length + stretch.length)
            if len(joined) > 1 and joined[-2].work == stretch.work:
                joined[-2:] = [joined[-2]._replace(last=stretch.last, length=joined[-2].length + joined[-1].length)]
        else:
            joined.append(stretch)
    ends = [stretch.first for stretch in joined[1:]] + [len(works)]
    first = [0, *(stretch.first for stretch in joined[1:])]
    return [s._replace(first=a, last=b) for s, a, b in zip(joined, first, ends, strict=True)] if joined else []
