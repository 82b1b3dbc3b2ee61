"""What a rank is doing at one moment, in words: ``forward of microbatch 3``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainsim.analysis.lanes import Lanes
from trainsim.analysis.memory import StageMemory
from trainsim.analysis.slots import Passes, slots, update, whole
from trainsim.contracts.exact import TICK

NAMES = {"F": "forward", "B": "backward", "I": "backward (inputs)", "W": "backward (weights)"}
"""Passes of a schedule for people."""


class Moment(NamedTuple):
    """The pass of a rank's compute chain at one moment, or what it does outside the passes.

    ``phase`` is a value of NAMES, or ``update`` for all that follows the passes; ``microbatch`` and ``chunk`` are -1
    outside passes. ``idle``: the pass is over and the next has not begun. ``chunks`` are those of the rank.
    """

    phase: str
    microbatch: int = -1
    chunk: int = -1
    idle: bool = False
    chunks: int = 1

    def __str__(self) -> str:
        """
        >>> str(Moment("forward", 3, 0)), str(Moment("backward", 0, 1, idle=True, chunks=2))
        ('in forward of microbatch 3', 'after backward of microbatch 0, chunk 1')
        >>> str(Moment("update")), str(Moment("start"))
        ('in the update after the passes', 'at the start of the step')
        """
        if self.phase == "update":
            return "in the update after the passes"
        if self.phase == "start":
            return "at the start of the step"
        chunk = f", chunk {self.chunk}" if self.chunks > 1 else ""
        return f"{'after' if self.idle else 'in'} {self.phase} of microbatch {self.microbatch}{chunk}"


def moment(lanes: Lanes, rank: int, at: float) -> Moment:
    """What *rank* does at *at* (seconds). Where one pass ends as the next begins, it is the next."""
    c = int(lanes.trace.rank_class[rank])
    found = whole(slots(lanes, c))
    begun = np.flatnonzero((found.start <= at) & (found.end > found.start))
    if any(piece.start <= at < piece.end for piece in update(lanes, c)):
        return Moment("update")
    if not len(begun):
        return Moment("start")
    running = begun[found.end[begun] > at]
    last = running[-1] if len(running) else begun[found.end[begun].argmax()]
    return _pass(found, int(last), idle=not len(running) and bool(found.end[last] < at - TICK))


def _pass(found: Passes, k: int, *, idle: bool) -> Moment:
    chunks = int(found.chunk.max()) + 1
    return Moment(NAMES[found.work[k]], int(found.microbatch[k]), int(found.chunk[k]), idle, chunks)


def at_peak(lanes: Lanes, stage: StageMemory) -> Moment:
    """What the fullest rank of a stage does when it holds most."""
    return moment(lanes, stage.rank, stage.peak_at_s)
