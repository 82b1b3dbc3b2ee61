"""PipeDream-2BW: asynchronous 1F1B with two versions of the weights (Narayanan et al., 2021, arXiv 2006.09503)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, flat, schedules
from trainsim.schedules.check import Numbers, at_least, one_chunk
from trainsim.schedules.one_f_one_b import one_f_one_b
from trainsim.schedules.traits import Traits

VERSIONS = 2
"""Weights that a rank holds: those of the microbatches in flight, and those that new ones start with."""


def _check(numbers: Numbers) -> None:
    one_chunk(numbers)
    at_least(numbers, numbers.ranks)


@schedules.register(
    "pipedream-2bw",
    "PipeDream-2BW",
    "pipedream2bw",
    traits=Traits(
        asynchronous=True,
        versions=lambda rank, ranks: VERSIONS,
        needs="microbatches >= ranks; 2 versions of the weights",
        source="arXiv 2006.09503",
    ),
    check=_check,
)
def pipedream_2bw(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """The order of 1F1B without a flush; gradients add up over a step of at least as many microbatches as ranks.

    >>> print(*pipedream_2bw(1, 2, microbatches=2))
    F0 B0 F1 B1
    """
    return flat(one_f_one_b(rank, ranks, microbatches=microbatches))
