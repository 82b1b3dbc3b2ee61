"""Kernels that share the GPU with collectives: how much longer they take than alone."""

from __future__ import annotations

import numpy as np

from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Lane, Lanes

KERNELS = ("forward", "backward", "recompute", "optimizer")


def contention(lanes: Lanes) -> float:
    """Seconds per step of the mean rank by which its kernels are longer than alone: sum of (duration - alone)."""
    total = sum(_slowed(lanes, lane) * int(lanes.count[lane.owner]) for lane in lanes.compute)
    return total / lanes.ranks / lanes.steps


def _slowed(lanes: Lanes, lane: Lane) -> float:
    """Of one class; only rows that had to share have marks."""
    marked = np.fromiter(lanes.trace.rows[lane.number].marks, np.int64)
    alone = np.zeros(len(COLUMN))
    runs, number = np.unique(lane.run[marked], return_counts=True)
    for run, count in zip(runs.tolist(), number.tolist(), strict=True):
        one = lanes.trace.runs[run]
        for label, start, end in zip(one.labels, one.starts, one.ends, strict=True):
            alone[COLUMN[label.kind]] += count * (end - start)
    columns = [COLUMN[kind] for kind in KERNELS]
    return float((lane.seconds[marked].sum(0) - alone)[columns].sum())
