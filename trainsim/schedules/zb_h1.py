"""ZB-H1: weight gradients wait until they fill bubbles, at the memory of 1F1B (Qi et al., 2023, arXiv 2401.10241)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import constraints, one_chunk
from trainsim.schedules.sequences import backwards, forwards, paired, postponed
from trainsim.schedules.traits import Traits, described


@schedules.register("zb-h1", "ZB-H1", "zb1p", "ZB1P", "zbh1", "zero-bubble")
def zb_h1(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """1F1B with split backwards; on rank r the weight gradient comes r input gradients after its own.

    No rank holds more than *ranks* microbatches. It is PyTorch's ScheduleInterleavedZeroBubble with one chunk.

    >>> print(*zb_h1(1, 2, microbatches=3))
    F0 I0 F1 I1 W0 F2 I2 W1 W2
    """
    ahead = forwards(microbatches)
    return postponed(paired(ahead, backwards(ahead), warmup=ranks - 1 - rank), backwards=rank)


described.register("zb-h1")(Traits(split=True, source="arXiv 2401.10241; sail-sg with max-pending-backward p"))


@constraints.register("zb-h1")
def _constraint(ranks: int, *, microbatches: int, chunks: int, group: int | None) -> None:
    one_chunk("zb-h1", chunks, group)
