"""What pictures and tables of memory say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.memory import MemoryUse, StageMemory
from trainsim.analysis.moments import at_peak
from trainsim.report.style import seconds, size

if TYPE_CHECKING:
    from trainsim.result import Result

CLOSE = 0.45
"""Of the capacity: if no stage holds more, pictures end above what is held and the capacity is outside."""


def peak_words(result: Result, stage: StageMemory) -> str:
    """How much a stage holds at most, when, and what takes most of it."""
    return (
        f"peak {size(stage.peak)} ({stage.peak / result.memory.capacity:.0%}) at {seconds(stage.peak_at_s)}, "
        f"{at_peak(result.lanes, stage)}; largest: {stage.largest}, {size(stage.part(stage.largest))}"
    )


def verdict(use: MemoryUse) -> str:
    """Whether all fits, and how full the fullest GPU is."""
    words = "fits" if use.fits else "DOES NOT FIT"
    return f"{words}: peak {size(use.peak)} of {size(use.capacity)} on rank {use.peak_rank}"


def top_of(use: MemoryUse) -> float:
    """The upper end of a picture, bytes: the capacity is in it unless little of it is used."""
    return max(use.peak, use.capacity if use.peak > CLOSE * use.capacity else 0.0) * 1.06
