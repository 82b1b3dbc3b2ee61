"""
Pipeline schedules: the order in which one rank works. Nothing else.

A schedule is a pure function of (rank, ranks, microbatches, chunks, group) that gives the rank's slots.
It knows nothing of bytes, links or time; messages are derived from the dependencies when a plan is lowered.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, Protocol

from trainsim.registry import Registry


class Work(StrEnum):
    """The passes of a microbatch through a chunk."""

    F = "F"  # forward
    B = "B"  # whole backward
    I = "I"  # input gradient only  # noqa: E741
    W = "W"  # weight gradient only

    __hash__ = str.__hash__  # orders are large sets of these, and an enum's own hash is slow


class Slot(NamedTuple):
    """One pass over one chunk of layers; ``chunk`` counts the virtual stages of the rank."""

    work: Work
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        """
        >>> str(Slot(Work.F, 3, 1))
        'F3.1'
        """
        return f"{self.work}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


class Schedule(Protocol):
    """Slots of *rank*; ``group`` microbatches go through a chunk together (None: the usual number)."""

    def __call__(
        self, rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
    ) -> Iterable[Slot]: ...


schedules: Registry[Schedule] = Registry("schedule", __name__)
