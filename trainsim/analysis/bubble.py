"""The pipeline bubble, under the three names in use; they differ, so each figure says which one it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainsim.analysis.breakdown import gaps
from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Floats, Ints, Lane, Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Idle time of the pipeline. Its *window* is from the start of the step to the end of the last pass, so that
    the gradient reduction and the optimizer are not in it. A rank is *busy* in its passes, with their collectives,
    and idle between them and while it waits for messages. Fractions without unit, times in seconds.

    * ``fraction``: 1 - busy / (ranks * window). 1F1B without latency: (p - 1) / (m + p - 1).
    * ``span_fraction``: 1 - mean busy / longest (last end - first start of a rank's passes).
    * ``idle_over_ideal``: idle / busy. 1F1B without latency: (p - 1) / m.
    * ``per_stage``: ``fraction`` of each stage.
    * ``warmup_s``: until every stage of the slowest pipeline has begun; ``cooldown_s``: from its first stage that is
      done; ``steady_s``: between.
    """

    fraction: float
    span_fraction: float
    idle_over_ideal: float
    per_stage: tuple[float, ...]
    warmup_s: float
    steady_s: float
    cooldown_s: float
    window_s: float


def bubble(lanes: Lanes, pipelines: Ints | None = None) -> Bubble:
    """Idle time of the passes of all ranks.

    ``pipelines`` has a row per pipeline: the ranks that pass microbatches to each other. Each has a window of its own,
    since a replica that is done and waits for a slow one has no bubble. None: all ranks are one pipeline.
    """
    busy, first, last = np.array([_passes(lanes, lane) for lane in lanes.compute]).T
    if pipelines is None:
        pipelines = np.arange(lanes.ranks)[None, :]
    classes, count = np.unique(lanes.trace.rank_class[pipelines], axis=0, return_counts=True)
    window, begun = last[classes].max(axis=1), first[classes].max(axis=1)
    total = float((window * count).sum()) * classes.shape[1]
    if total <= 0.0:
        return _none(lanes.stages)
    work = float((busy * lanes.count).sum())
    of_class = np.zeros(len(busy))
    np.add.at(of_class, classes, np.broadcast_to((window * count)[:, None], classes.shape))
    per_stage = 1.0 - np.bincount(lanes.stage, busy * lanes.count) / np.bincount(lanes.stage, of_class)
    slowest = int(window.argmax())
    done = max(float(last[classes[slowest]].min()), float(begun[slowest]))
    return Bubble(
        fraction=1.0 - work / total,
        span_fraction=1.0 - work / lanes.ranks / float((last - first).max()),
        idle_over_ideal=(total - work) / work if work else 0.0,
        per_stage=tuple(per_stage.tolist()),
        warmup_s=float(begun[slowest]),
        steady_s=done - float(begun[slowest]),
        cooldown_s=float(window[slowest]) - done,
        window_s=float(window[slowest]),
    )


def _none(stages: int) -> Bubble:
    return Bubble(
        fraction=0.0, span_fraction=0.0, idle_over_ideal=0.0, per_stage=(0.0,) * stages,
        warmup_s=0.0, steady_s=0.0, cooldown_s=0.0, window_s=0.0,
    )  # fmt: skip


def _passes(lanes: Lanes, lane: Lane) -> tuple[float, float, float]:
    """Busy seconds in passes, start of the first and end of the last one."""
    rows = np.flatnonzero(lane.in_pass)
    if not len(rows):
        return 0.0, 0.0, 0.0
    work: Floats = lane.end - lane.posted - lane.seconds[:, COLUMN["pp"]]
    cause = lanes.gap_cause(lane)
    beside = rows[cause[rows] >= 0]  # gaps that end with another chain of this rank are no bubble
    beside = beside[np.isin(lanes.chain_of[cause[beside]], [o.number for o in lanes.others[lane.owner]])]
    busy = work[rows].sum() + gaps(lane)[1][beside].sum()
    return float(busy), float(lane.posted[rows[0]]), float(lane.end[rows[-1]])
