"""PipeDream-2BW: asynchronous 1F1B with two versions of the weights (Narayanan et al., 2021, arXiv 2006.09503)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, flat, schedules
from trainsim.schedules.check import at_least, constraints, one_chunk
from trainsim.schedules.one_f_one_b import one_f_one_b
from trainsim.schedules.traits import Traits, described

VERSIONS = 2
"""Weights that a rank holds: those of the microbatches in flight, and those that new ones start with."""


@schedules.register("pipedream-2bw", "PipeDream-2BW", "pipedream2bw")
def pipedream_2bw(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """The order of 1F1B without a flush; gradients add up over a step of at least as many microbatches as ranks.

    >>> print(*pipedream_2bw(1, 2, microbatches=2))
    F0 B0 F1 B1
    """
    return flat(one_f_one_b(rank, ranks, microbatches=microbatches))


described.register("pipedream-2bw")(
    Traits(
        asynchronous=True,
        versions=lambda rank, ranks: VERSIONS,
        needs="microbatches >= ranks; 2 versions of the weights",
        source="arXiv 2006.09503",
    )
)


@constraints.register("pipedream-2bw")
def _constraint(ranks: int, *, microbatches: int, chunks: int, group: int | None) -> None:
    one_chunk("pipedream-2bw", chunks, group)
    at_least("pipedream-2bw", ranks, microbatches, ranks)
