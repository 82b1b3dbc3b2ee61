"""Interleaved 1F1B in other ways: one forward fewer ahead per rank, or backwards in two parts."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, flat, schedules
from trainsim.schedules.interleaved import groups_fit, interleaved_1f1b, usual_group
from trainsim.schedules.sequences import backwards, forwards, paired, split
from trainsim.schedules.traits import Traits

_NEEDS = "2 or more chunks"


@schedules.register(
    "interleaved-1f1b-x1",
    traits=Traits(chunks=None, grouped=True, needs=_NEEDS, source="the order of Megatron-LM with a shorter warm-up"),
    check=groups_fit,
)
def single_hop(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """Interleaved with a warm-up of one forward per following rank, not two: ``ranks - 1`` fewer chunks in flight.

    It idles as little as the other where messages take no time; where they do, it pays for every microbatch.

    >>> print(*single_hop(0, 2, microbatches=2, chunks=2))
    F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1
    """
    size = group or usual_group(ranks, microbatches)
    ahead = forwards(microbatches, chunks, size)
    return paired(ahead, backwards(ahead, chunks), warmup=ranks - 1 - rank + (chunks - 1) * size)


@schedules.register(
    "interleaved-1f1b-split",
    traits=Traits(chunks=None, grouped=True, split=True, needs=_NEEDS, source="the order of Megatron-LM, B as I and W"),
    check=groups_fit,
)
def split_interleaved(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """Interleaved 1F1B whose backwards send the input gradient before they compute the weight gradient.

    >>> print(*split_interleaved(1, 2, microbatches=1, chunks=2))
    F0 F0.1 I0.1 W0.1 I0 W0
    """
    return split(flat(interleaved_1f1b(rank, ranks, microbatches=microbatches, chunks=chunks, group=group)))
