"""Steps that run back to back: when each of them ends, and how long one takes once the first is over."""

from __future__ import annotations

import numpy as np

from trainsim.analysis.lanes import Floats, Lanes
from trainsim.analysis.memory import task_bounds


def step_ends(lanes: Lanes) -> Floats:
    """When the last rank has done the update of each step, seconds."""
    ends = [
        task_bounds(lane, lanes.trace.rows[lane.number].tasks)[1][updates]
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
