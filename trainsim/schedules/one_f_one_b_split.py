"""1F1B that sends the input gradient before it computes the weight gradient: less idle time, no more memory."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, flat, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.one_f_one_b import one_f_one_b
from trainsim.schedules.sequences import split
from trainsim.schedules.traits import Traits


@schedules.register("1f1b-split", traits=Traits(split=True, source="the order of 1F1B, B as I and W"), check=one_chunk)
def split_1f1b(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """The order of 1F1B; each backward is its input gradient and, right after it, its weight gradient.

    >>> print(*split_1f1b(1, 2, microbatches=2))
    F0 I0 W0 F1 I1 W1
    """
    return split(flat(one_f_one_b(rank, ranks, microbatches=microbatches)))
