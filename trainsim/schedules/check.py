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
    no_group(name, group)


def two_chunks(name: str, chunks: int, group: int | None) -> None:
    """The constraint of a schedule that lays two chunks on every rank, in a V or as two replicas."""
    if chunks != 2:
        raise InvalidPlan(f"{name} has 2 chunks per rank, not {chunks}; chunks: 2 works.")
    no_group(name, group)


def no_group(name: str, group: int | None) -> None:
    """The constraint of a schedule whose order does not depend on a group."""
    if group is not None:
        raise InvalidPlan(f"{name} takes no group of microbatches (got {group}); interleaved-1f1b does.")


def at_least(name: str, ranks: int, microbatches: int, least: int) -> None:
    """The constraint of a schedule that cannot be filled with fewer than *least* microbatches."""
    if microbatches < least:
        raise InvalidPlan(
            f"{name} on {ranks} stages needs {least} or more microbatches, not {microbatches}; "
            f"microbatches: {least} works."
        )


def multiple(name: str, what: str, number: int, factor: int) -> None:
    """The constraint that *number* of *what* is a multiple of *factor*; names the nearest numbers that are."""
    if number % factor:
        below, above = number // factor * factor, (number // factor + 1) * factor
        works = f"{below} or {above}" if below else f"{above}"
        raise InvalidPlan(f"{name} needs {what} in multiples of {factor}, not {number}; {works} would work.")
