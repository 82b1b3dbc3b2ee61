"""
What a schedule needs of ranks, microbatches and chunks, and which numbers would work.

A schedule names its check where it is registered; without one, only the general rule holds.
"""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple

from trainsim.errors import InvalidPlan


class Numbers(NamedTuple):
    """What a pipeline is to run on; ``name`` is that of the schedule."""

    name: str
    ranks: int
    microbatches: int
    chunks: int = 1
    group: int | None = None


def check_sizes(numbers: Numbers) -> None:
    """The general rule: whole numbers, 1 or more. Raises InvalidPlan."""
    name, ranks, microbatches, chunks, group = numbers
    sizes = {"stages (pp)": ranks, "microbatches": microbatches, "chunks": chunks}
    if group is not None:
        sizes["group"] = group
    for what, number in sizes.items():
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            raise InvalidPlan(f"{name} needs a whole number of {what}, 1 or more, not {number!r}.")


def one_chunk(numbers: Numbers) -> None:
    """The check of a schedule without virtual stages."""
    if numbers.chunks != 1:
        raise InvalidPlan(
            f"{numbers.name} has one chunk per rank, not {numbers.chunks}; chunks: 1 works, or interleaved-1f1b."
        )
    no_group(numbers)


def two_chunks(numbers: Numbers) -> None:
    """The check of a schedule that lays two chunks on every rank, in a V or as two replicas."""
    if numbers.chunks != 2:
        raise InvalidPlan(f"{numbers.name} has 2 chunks per rank, not {numbers.chunks}; chunks: 2 works.")
    no_group(numbers)


def no_group(numbers: Numbers) -> None:
    """The check of a schedule whose order does not depend on a group."""
    if numbers.group is not None:
        raise InvalidPlan(
            f"{numbers.name} takes no group of microbatches (got {numbers.group}); interleaved-1f1b does."
        )


def at_least(numbers: Numbers, least: int) -> None:
    """The check of a schedule that cannot be filled with fewer than *least* microbatches."""
    if numbers.microbatches < least:
        raise InvalidPlan(
            f"{numbers.name} on {numbers.ranks} stages needs {least} or more microbatches, not {numbers.microbatches}; "
            f"microbatches: {least} works."
        )


def multiple(numbers: Numbers, what: str, number: int, factor: int) -> None:
    """The check that *number* of *what* is a multiple of *factor*; names the nearest numbers that are."""
    if number % factor:
        below, above = number // factor * factor, (number // factor + 1) * factor
        works = f"{below} or {above}" if below else f"{above}"
        raise InvalidPlan(f"{numbers.name} needs {what} in multiples of {factor}, not {number}; {works} would work.")
