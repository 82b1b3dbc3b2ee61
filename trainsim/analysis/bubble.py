"""The pipeline bubble, under the three names in use; they differ, so each figure says which one it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainsim.analysis.breakdown import gaps
from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Floats, Lane, Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Idle time of the pipeline. Its *window* is from the start of the step to the end of the last pass, so that
    the gradient reduction and the optimizer are not in it. A rank is *busy* in its passes, with their collectives,
    and idle between them and while it waits for messages. Fractions without unit, times in seconds.

    * ``fraction``: 1 - busy / (ranks * window). 1F1B without latency: (p - 1) / (m + p - 1).
    * ``span_fraction``: 1 - mean busy / longest (last end - first start of a rank's passes).
    * ``idle_over_ideal``: idle / busy. 1F1B without latency: (p - 1) / m.
    * ``per_stage``: ``fraction`` of each stage.
    * ``warmup_s``: until every stage has begun; ``cooldown_s``: from the first stage that is done;
      ``steady_s``: between.
    """

    fraction: float
    span_fraction: float
    idle_over_ideal: float
    per_stage: tuple[float, ...]
    warmup_s: float
    steady_s: float
    cooldown_s: float
    window_s: float


def bubble(lanes: Lanes) -> Bubble:
    """Idle time of the passes of all ranks."""
    busy, first, last = np.array([_passes(lanes, lane) for lane in lanes.compute]).T
    window = float(last.max())
    if window <= 0.0:
        return Bubble(
            fraction=0.0, span_fraction=0.0, idle_over_ideal=0.0, per_stage=(0.0,) * lanes.stages,
            warmup_s=0.0, steady_s=0.0, cooldown_s=0.0, window_s=0.0,
        )  # fmt: skip
    mean = float((busy * lanes.count).sum()) / lanes.ranks
    per_stage = np.bincount(lanes.stage, busy * lanes.count) / np.bincount(lanes.stage, lanes.count)
    begun = min(float(first.max()), window)
    done = max(float(last.min()), begun)
    return Bubble(
        fraction=1.0 - mean / window,
        span_fraction=1.0 - mean / float((last - first).max()),
        idle_over_ideal=(window - mean) / mean if mean else 0.0,
        per_stage=tuple((1.0 - per_stage / window).tolist()),
        warmup_s=begun,
        steady_s=done - begun,
        cooldown_s=window - done,
        window_s=window,
    )


def _passes(lanes: Lanes, lane: Lane) -> tuple[float, float, float]:
    """Busy seconds in passes, start of the first and end of the last one."""
    rows = np.flatnonzero(lane.in_pass)
    if not len(rows):
        return 0.0, 0.0, 0.0
    work: Floats = lane.end - lane.posted - lane.seconds[:, COLUMN["pp"]]
    beside = rows[lane.cause[rows] >= 0]  # gaps that end with another chain of this rank are no bubble
    beside = beside[np.isin(lanes.chain_of[lane.cause[beside]], [o.number for o in lanes.others[lane.owner]])]
    busy = work[rows].sum() + gaps(lane)[1][beside].sum()
    return float(busy), float(lane.posted[rows[0]]), float(lane.end[rows[-1]])
