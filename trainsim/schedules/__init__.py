"""
Pipeline schedules: the order in which one rank works. Nothing else.

A schedule is a pure function of (rank, ranks, microbatches, chunks, group) that gives the rank's slots.
It knows nothing of bytes, links or time; messages are derived from the dependencies when a plan is lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from inspect import getdoc
from typing import NamedTuple, Protocol

from trainsim.registry import Registry
from trainsim.schedules.check import Numbers, check_sizes
from trainsim.schedules.traits import Traits


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


class About(NamedTuple):
    """What is registered with a schedule beside its order."""

    traits: Traits
    check: Check | None


Check = Callable[[Numbers], None]
"""Raises InvalidPlan, with numbers that work, where the schedule cannot be laid out."""


class Schedules(Registry[Schedule]):
    """All schedules by name, each with its traits, what it needs of the numbers, and a description."""

    def __init__(self, kind: str, package: str):
        super().__init__(kind, package)
        self._about: dict[str, About] = {}

    def register(
        self, name: str, *aliases: str, traits: Traits | None = None, check: Check | None = None
    ) -> Callable[[Schedule], Schedule]:
        """Add the decorated order under *name*; *aliases* are found but not listed."""
        self._about[name] = About(traits or Traits(), check)
        return super().register(name, *aliases)

    def traits(self, name: str) -> Traits:
        """Facts about the schedule called *name* (or an alias). Raises UnknownName.

        >>> schedules.traits("1F1B").chunks, schedules.traits("dualpipe").replicas
        (1, 2)
        """
        return self._about[self.canonical(name)].traits

    def description(self, name: str) -> str:
        """The first line that the schedule's own file says about it.

        >>> schedules.description("gpipe")
        'Every rank holds all microbatches before its first backward; backwards ascend, as in PyTorch.'
        """
        return (getdoc(self[name]) or "").split("\n")[0]

    def check(self, name: str, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> None:
        """Return when the schedule called *name* (or an alias) can run on these numbers.

        Raises UnknownName for an unknown schedule and InvalidPlan for numbers that do not work.

        >>> schedules.check("1f1b", 4, microbatches=2)
        >>> schedules.check("1f1b", 4, microbatches=8, chunks=2)
        Traceback (most recent call last):
        trainsim.errors.InvalidPlan: 1f1b has one chunk per rank, not 2; chunks: 1 works, or interleaved-1f1b.
        """
        numbers = Numbers(self.canonical(name), ranks, microbatches, chunks, group)
        check_sizes(numbers)
        if (check := self._about[numbers.name].check) is not None:
            check(numbers)


schedules = Schedules("schedule", __name__)


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
