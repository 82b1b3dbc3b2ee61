"""Which parts of a long step to draw: warm-up, one steady window, cool-down, all at one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.report.scene import Stage

if TYPE_CHECKING:
    from trainsim.result.result import Result

WHOLE = 80
"""Passes of one rank that still fit in one panel."""
DETAILED = 60
"""Passes of all ranks up to which a window shows single kernels, ..."""
KERNELS = 900
"""... if no rank has more kernels and collectives than these in it."""


class Window(NamedTuple):
    """A part of the step, seconds, and its name."""

    title: str
    start: float
    end: float


def windows(
    stages: Sequence[Stage], step: float, warmup: float, cooldown: float, *, ends: Sequence[float] = ()
) -> tuple[Window, ...]:
    """The whole step if its passes fit in one panel; else three windows of one length.

    Warm-up goes on until the first rank has had its first backward pass; cool-down begins when some rank has begun its
    last forward pass. The length is that of the longer of the two, within reason. Several steps end at *ends*: the
    window between shows the end of one of them.
    """
    if max(int((stage.slots.start < step).sum()) for stage in stages) <= WHOLE:
        return (Window(f"{len(ends)} steps" if len(ends) > 1 else "whole step", 0.0, step),)
    firsts = [
        min((stage.slots.end[_first(stage, work)] for work in "BI" if work in stage.slots.work), default=0.0)
        for stage in stages
    ]
    lasts = [stage.slots.start[_last(stage, "F")] for stage in stages if "F" in stage.slots.work]
    length = max([max(firsts, default=0.0), step - min(lasts, default=step)]) * 1.04
    few = float(np.median([typical(stage) for stage in stages])) * 40
    length = float(np.clip(length, max(few, 1.5 * warmup, 1.2 * cooldown), step / 3.2))
    between = len(ends) > 1
    middle = ends[(len(ends) - 1) // 2] if between else (warmup + step - cooldown) / 2
    return (
        Window("start: warm-up and first steady microbatches", 0.0, length),
        Window("from step to step" if between else "steady state", middle - length / 2, middle + length / 2),
        Window("end: last steady microbatches, cool-down and update", step - length, step),
    )


def _first(stage: Stage, work: str) -> int:
    return stage.slots.work.index(work)


def _last(stage: Stage, work: str) -> int:
    return len(stage.slots.work) - 1 - stage.slots.work[::-1].index(work)


def typical(stage: Stage) -> float:
    """Seconds of the typical pass of a rank."""
    return float(np.median(stage.slots.end - stage.slots.start))


def detailed(result: Result, stages: Sequence[Stage], start: float, end: float) -> bool:
    """Whether single kernels can be told apart in a window."""
    passes = sum(int(((s.slots.end > start) & (s.slots.start < end)).sum()) for s in stages)
    if passes > DETAILED:
        return False
    lanes, size = result.lanes, [len(run.labels) for run in result.trace.runs]
    for stage in stages:
        lane = lanes.compute[int(lanes.trace.rank_class[stage.rank])]
        length = np.maximum(lane.end - lane.start, 1e-300)
        seen = np.clip(np.minimum(lane.end, end) - np.maximum(lane.start, start), 0.0, None) / length
        if float((seen * np.array(size)[lane.run]).sum()) > KERNELS:
            return False
    return True
