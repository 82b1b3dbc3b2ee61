"""Slices of a sequence as the unit of a schedule: each needs the earlier ones forward and the later ones backward."""

from __future__ import annotations

from trainsim.errors import InvalidPlan
from trainsim.schedules import Slot, Work
from trainsim.schedules.check import Numbers

SLICES = 4
"""Slices per sequence unless ``group`` says otherwise."""


def sliced_backwards(microbatches: int, slices: int) -> list[Slot]:
    """Backwards of every microbatch in turn, its slices from the last to the first.

    >>> print(*sliced_backwards(2, 3))
    B2 B1 B0 B5 B4 B3
    """
    return [
        Slot(Work.B, microbatch * slices + k) for microbatch in range(microbatches) for k in reversed(range(slices))
    ]


def check_slices(numbers: Numbers) -> None:
    """The check of a schedule of slices."""
    if numbers.chunks != 1:
        raise InvalidPlan(
            f"{numbers.name} has one chunk per rank, not {numbers.chunks}; chunks: 1 works (slices are its group)."
        )
