"""Slices of a sequence as the unit of a schedule: each needs the earlier ones forward and the later ones backward."""

from __future__ import annotations

from trainsim.errors import InvalidPlan
from trainsim.schedules import Slot, Work

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


def check_slices(name: str, chunks: int) -> None:
    """The constraint of a schedule of slices."""
    if chunks != 1:
        raise InvalidPlan(f"{name} has one chunk per rank, not {chunks}; chunks: 1 works (slices are its group).")
