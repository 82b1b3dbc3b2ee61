"""1F1B that works twice as far ahead, so that latency is hidden for more memory."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.sequences import backwards, forwards, paired
from trainsim.schedules.traits import Traits


@schedules.register(
    "eager-1f1b",
    "eager_1f1b",
    "eager1f1b",
    "Eager1F1B",
    traits=Traits(source="Zhuang et al., 2023, arXiv 2211.05322"),
    check=one_chunk,
)
def eager_1f1b(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """``2 * (ranks - 1 - rank)`` forwards before the first backward; ``Schedule1F1B`` has half as many.

    PyTorch's ScheduleInterleaved1F1B with one chunk per rank is this order.

    >>> print(*eager_1f1b(0, 2, microbatches=4))
    F0 F1 F2 B0 F3 B1 B2 B3
    """
    ahead = forwards(microbatches)
    return paired(ahead, backwards(ahead), warmup=2 * (ranks - 1 - rank))
