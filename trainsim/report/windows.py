"""Which parts of a long step to draw, and which ranks: a warm-up, a steady window and a cool-down of a few stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.errors import InvalidPlan
from trainsim.report.drawn_ranks import DrawnRank

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis

MOST = 16
"""Stages that a picture has room for; of more, a few are drawn."""
WHOLE = 80
"""Passes of one rank that still fit in one panel."""
TOLD_APART = 100
"""Passes of one rank that can be told apart in one panel."""
DETAILED = 60
"""Passes of all ranks up to which a window shows single kernels, ..."""
KERNELS = 900
"""... if no rank has more kernels and collectives than these in it."""


class Panel(NamedTuple):
    """A part of the step, seconds, and its name."""

    title: str
    start: float
    end: float


def checked(window: tuple[float, float], end: float, what: str = "the step") -> tuple[float, float]:
    """*window* (seconds), cut to what there is: 0 to *end*. Raises InvalidPlan if nothing is left."""
    first, last = max(0.0, float(window[0])), min(end, float(window[1]))
    if not first < last:
        raise InvalidPlan(f"window {tuple(window)} shows nothing: {what} is from 0 to {end:.6g} s")
    return first, last


def chosen(result: StepAnalysis) -> tuple[int, ...]:
    """The ranks of a pipeline that a picture shows if nobody asks for some: all of them, or of many stages a few."""
    return result.pipeline if len(result.pipeline) <= MOST else few_of(result)


def few_of(result: StepAnalysis) -> tuple[int, ...]:
    """Of a pipeline the ranks of the first two stages, the middle one, the last two, and the one that works longest."""
    ranks, busy = result.pipeline, [stage.busy_s for stage in result.bubble.stages]
    last = len(ranks) - 1
    stages = {0, min(1, last), last // 2, max(last - 1, 0), last}
    longest = sorted(range(len(busy)), key=lambda stage: (stage in stages, -busy[stage]))
    return tuple(ranks[stage] for stage in sorted({*stages, *longest[:1]}))


def windows(
    stages: Sequence[DrawnRank], step: float, warmup: float, cooldown: float, *, ends: Sequence[float] = ()
) -> tuple[Panel, ...]:
    """The whole step if its passes fit in one panel; else three windows of one length, of which the middle one is
    shorter where single passes could not be told apart.

    Warm-up goes on until the first rank has had its first backward pass; cool-down begins when some rank has begun its
    last forward pass. The length is that of the longer of the two, within reason. Several steps end at *ends*: the
    window between shows the end of one of them.
    """
    if max(int((stage.passes.start < step).sum()) for stage in stages) <= WHOLE:
        return (Panel(f"{len(ends)} steps" if len(ends) > 1 else "whole step", 0.0, step),)
    firsts = [
        min((stage.passes.end[_first(stage, work)] for work in "BI" if work in stage.passes.work), default=0.0)
        for stage in stages
    ]
    lasts = [stage.passes.start[_last(stage, "F")] for stage in stages if "F" in stage.passes.work]
    length = max([max(firsts, default=0.0), step - min(lasts, default=step)]) * 1.04
    few = float(np.median([typical(stage) for stage in stages])) * 40
    length = float(np.clip(length, max(few, 1.5 * warmup, 1.2 * cooldown), step / 3.2))
    between = len(ends) > 1
    middle = ends[(len(ends) - 1) // 2] if between else (warmup + step - cooldown) / 2
    half = min(length, TOLD_APART * float(np.median([typical(stage) for stage in stages]))) / 2
    title = ("from step to step" if between else "steady state") + (", zoomed in" if 2 * half < length else "")
    return (
        Panel("start: warm-up and first steady microbatches", 0.0, length),
        Panel(title, middle - half, middle + half),
        Panel("end: last steady microbatches, cool-down and update", step - length, step),
    )


def _first(stage: DrawnRank, work: str) -> int:
    return stage.passes.work.index(work)


def _last(stage: DrawnRank, work: str) -> int:
    return len(stage.passes.work) - 1 - stage.passes.work[::-1].index(work)


def typical(stage: DrawnRank) -> float:
    """Seconds of the typical pass of a rank."""
    return float(np.median(stage.passes.end - stage.passes.start))


def detailed(result: StepAnalysis, stages: Sequence[DrawnRank], start: float, end: float) -> bool:
    """Whether single kernels can be told apart in a window."""
    passes = sum(int(((s.passes.end > start) & (s.passes.start < end)).sum()) for s in stages)
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
