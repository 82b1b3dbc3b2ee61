"""
Pipeline schedules: the order in which one rank works. Nothing else.

A schedule is a pure function of (rank, ranks, microbatches, chunks, group) that gives the rank's slots.
It knows nothing of bytes, links or time; messages are derived from the dependencies when a plan is lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class Pair(NamedTuple):
    """A forward and a backward that run at once, as in DualPipe or under Megatron-LM's expert-parallel overlap."""

    forward: Slot
    backward: Slot

    def __str__(self) -> str:
        """
        >>> str(Pair(Slot(Work.F, 3), Slot(Work.B, 1, 1)))
        'F3&B1.1'
        """
        return f"{self.forward}&{self.backward}"


class Schedule(Protocol):
    """Slots of *rank*, in order; two that run at once are a ``Pair``.

    ``group`` microbatches go through a chunk together (None: the usual number); where a schedule cuts sequences
    (``Traits.sliced``) it is the number of slices, and a slot's ``microbatch`` counts slices.
    """

    def __call__(
        self, rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
    ) -> Iterable[Slot | Pair]: ...


schedules: Registry[Schedule] = Registry("schedule", __name__)


def flat(slots: Iterable[Slot | Pair]) -> Iterator[Slot]:
    """Every slot on its own, the two of a pair one after the other.

    >>> print(*flat([Slot(Work.F, 0), Pair(Slot(Work.F, 1), Slot(Work.B, 0))]))
    F0 F1 B0
    """
    for slot in slots:
        if isinstance(slot, Pair):
            yield from slot
        else:
            yield slot
