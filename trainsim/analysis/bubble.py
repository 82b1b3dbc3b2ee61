"""The pipeline bubble, under the names in use; they differ, so each figure says which one it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainsim.analysis.idle import Occupancy, first_step, gaps, later_steps, occupancy
from trainsim.analysis.lanes import Floats, Ints, Lane, Lanes
from trainsim.analysis.stalls import Stall, phases, stalls


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Idle time of the pipeline, of its first step where several run back to back. Its *window* is from the start of
    the step (or the end of its rollout) to the end of the last pass, so that the gradient reduction and the optimizer
    are not in it. A rank is *busy* in its passes, with their collectives, and in updates within a step (PipeDream's);
    it is idle between them and while it waits for messages. Fractions without unit, times in seconds.

    * ``fraction``: 1 - busy / (ranks * window). 1F1B without latency: (p - 1) / (m + p - 1).
    * ``span_fraction``: 1 - mean busy / longest (last end - first start of a rank's passes).
    * ``period_fraction``: the idle part of the period in which steps follow each other, less what ranks do outside
      their passes (reductions, optimizer); None for a single step.
    * ``idle_over_ideal``: idle / busy. 1F1B without latency: (p - 1) / m.
    * ``per_stage``: ``fraction`` of each stage; ``stages`` says when its mean rank is idle, and why.
    * ``warmup_s``, ``steady_s``, ``cooldown_s``: the phases of the slowest pipeline, see ``stalls.phases``.
    """

    fraction: float
    span_fraction: float
    idle_over_ideal: float
    per_stage: tuple[float, ...]
    warmup_s: float
    steady_s: float
    cooldown_s: float
    window_s: float
    period_fraction: float | None = None
    stages: tuple[Stall, ...] = ()


class _StageUse(NamedTuple):
    """What the passes of every class take, with its busy seconds, its first start and its last end; of pipelines of the
    same classes their ``classes``, their window and number; busy seconds and windows of all ranks."""

    every: list[Occupancy]
    busy: Floats
    first: Floats
    last: Floats
    classes: Ints
    window: Floats
    pipelines: Ints
    work: float
    total: float


def _use(lanes: Lanes, pipelines: Ints | None) -> _StageUse:
    every = [occupancy(lanes, lane, first_step(lanes, lane)) for lane in lanes.compute]
    busy, first, last = (np.array([getattr(taken, name) for taken in every]) for name in ("busy", "first", "last"))
    if pipelines is None:
        pipelines = np.arange(lanes.ranks)[None, :]
    classes, count = np.unique(lanes.trace.rank_class[pipelines], axis=0, return_counts=True)
    window = last[classes].max(axis=1)
    work, total = float((busy * lanes.count).sum()), float((window * count).sum()) * classes.shape[1]
    return _StageUse(every, busy, first, last, classes, window, count, work, total)


def fraction(lanes: Lanes, pipelines: Ints | None = None) -> float:
    """The ``fraction`` of ``bubble`` alone, which takes less time than all of it."""
    use = _use(lanes, pipelines)
    return 1.0 - use.work / use.total if use.total > 0.0 else 0.0


def bubble(lanes: Lanes, pipelines: Ints | None = None) -> Bubble:
    """Idle time of the passes of all ranks.

    ``pipelines`` has a row per pipeline: the ranks that pass microbatches to each other. Each has a window of its own,
    since a replica that is done and waits for a slow one has no bubble. None: all ranks are one pipeline.
    """
    use = _use(lanes, pipelines)
    if use.total <= 0.0:
        return _none(lanes.stages)
    every, busy, first, last, classes, window, count, work, total = use
    phase = [phases(lanes, lane, taken) for lane, taken in zip(lanes.compute, every, strict=True)]
    of_class = np.zeros(len(busy))
    np.add.at(of_class, classes, np.broadcast_to((window * count)[:, None], classes.shape))
    per_stage = 1.0 - np.bincount(lanes.stage, busy * lanes.count) / np.bincount(lanes.stage, of_class)
    starts = np.array([one.steady_from for one in phase])[classes].max(axis=1)
    slowest = int(np.lexsort((starts, window))[-1])  # of several as slow the one that began last
    warmup = float(starts[slowest])
    cooldown = max(warmup, min(phase[c].cooldown_from for c in classes[slowest].tolist()))
    return Bubble(
        fraction=1.0 - work / total,
        span_fraction=1.0 - work / lanes.ranks / max(float((last - first).max()), float(busy.max())),
        idle_over_ideal=(total - work) / work if work else 0.0,
        per_stage=tuple(per_stage.tolist()),
        warmup_s=warmup,
        steady_s=cooldown - warmup,
        cooldown_s=float(window[slowest]) - cooldown,
        window_s=float(window[slowest]),
        period_fraction=_period(lanes) if lanes.steps > 1 else None,
        stages=stalls(lanes, list(zip(every, phase, strict=True)), of_class / lanes.count),
    )


def _none(stages: int) -> Bubble:
    return Bubble(
        fraction=0.0, span_fraction=0.0, idle_over_ideal=0.0, per_stage=(0.0,) * stages,
        warmup_s=0.0, steady_s=0.0, cooldown_s=0.0, window_s=0.0,
    )  # fmt: skip


def _period(lanes: Lanes) -> float:
    """Idle part of what the ranks have for passes between the end of the first update and that of the last."""
    parts = np.array([_after(lanes, lane) for lane in lanes.compute])
    busy, available = (parts * lanes.count[:, None]).sum(0)
    return float(1.0 - busy / available) if available > 0 else 0.0


def _after(lanes: Lanes, lane: Lane) -> tuple[float, float]:
    """(Busy seconds, seconds less those of the updates) of one class in the steps after the first."""
    within = later_steps(lanes, lane)
    occupied, rows = (
        occupancy(lanes, lane, within),
        np.flatnonzero(within & lanes.updating(lane)),
    )
    cause, gap = lanes.gap_cause(lane)[rows], gaps(lane)[1][rows]
    reductions = np.isin(lanes.chain_of[cause], [other.number for other in lanes.others[lane.owner]]) & (cause >= 0)
    updates = float((lane.end - lane.start)[rows].sum() + gap[reductions].sum())
    ends = np.flatnonzero(lanes.updating(lane) & (np.diff(lane.task, append=-1) != 0))
    generated = float((lane.end - gaps(lane)[0])[within & lane.generates].sum())
    return occupied.busy, float(lane.end[ends[-1]] - lane.end[ends[0]]) - updates - generated


def step_ends(lanes: Lanes) -> Floats:
    """When the last rank has done the update of each step, seconds."""
    ends = [
        lanes.trace.task_times(lane.number)[1][updates]
        for lane, updates in zip(lanes.compute, lanes.updates, strict=True)
    ]
    every: Floats = np.max(np.array(ends), axis=0)
    return every


def period(lanes: Lanes) -> float | None:
    """(End of the last update - end of the first) / (steps - 1), seconds; None for a single step."""
    if lanes.steps == 1:
        return None
    ends = step_ends(lanes)
    return float(ends[-1] - ends[0]) / (lanes.steps - 1)
