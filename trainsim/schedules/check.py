"""
What a schedule needs of ranks, microbatches and chunks, and which numbers would work.

A schedule's own file registers its constraint under the schedule's name; without one, only the general rule
holds.
"""

from __future__ import annotations

from numbers import Integral
from typing import Protocol

from trainsim.errors import InvalidPlan
from trainsim.registry import Registry
from trainsim.schedules import schedules


class Constraint(Protocol):
    """Raises InvalidPlan, with numbers that work, where the schedule cannot be laid out."""

    def __call__(self, ranks: int, *, microbatches: int, chunks: int, group: int | None) -> None: ...


constraints: Registry[Constraint] = Registry("schedule with constraints")


def check(schedule: str, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> None:
    """Return when *schedule* (a name or an alias) can run on these numbers.

    Raises UnknownName for an unknown schedule and InvalidPlan for numbers that do not work.

    >>> check("1f1b", 4, microbatches=2)
    >>> check("1f1b", 4, microbatches=8, chunks=2)
    Traceback (most recent call last):
    trainsim.errors.InvalidPlan: 1f1b has one chunk per rank, not 2; chunks: 1 works, or interleaved-1f1b.
    """
    name = schedules.canonical(schedule)
    numbers = {"stages (pp)": ranks, "microbatches": microbatches, "chunks": chunks}
    if group is not None:
        numbers["group"] = group
    for what, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            raise InvalidPlan(f"{name} needs a whole number of {what}, 1 or more, not {number!r}.")
    if name in constraints:
        constraints[name](ranks, microbatches=microbatches, chunks=chunks, group=group)


def one_chunk(name: str, chunks: int, group: int | None) -> None:
    """The constraint of a schedule without virtual stages."""
    if chunks != 1:
        raise InvalidPlan(f"{name} has one chunk per rank, not {chunks}; chunks: 1 works, or interleaved-1f1b.")
    if group is not None:
        raise InvalidPlan(f"{name} takes no group of microbatches (got {group}); only interleaved-1f1b does.")
