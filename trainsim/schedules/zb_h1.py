"""ZB-H1: weight gradients wait until they fill bubbles, at the memory of 1F1B (Qi et al., 2023, arXiv 2401.10241)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.costs import costs_of
from trainsim.schedules.traits import Traits
from trainsim.schedules.zero_bubble import plan


@schedules.register(
    "zb-h1",
    "ZB-H1",
    "zb1p",
    "ZB1P",
    "zbh1",
    "zero-bubble",
    traits=Traits(
        split=True, planned=True, source="arXiv 2401.10241; sail-sg zb.py, Megatron-DeepSpeed enable-zbh1-pipeline"
    ),
    check=one_chunk,
)
def zb_h1(
    rank: int,
    ranks: int,
    *,
    microbatches: int,
    chunks: int = 1,
    group: int | None = None,
    costs: Sequence[float] | None = None,
) -> Iterator[Slot]:
    """At most *ranks* microbatches in flight, planned for *costs* (F, I, W and message; None: 1, 1, 1 and 0.001).

    With more microbatches than ranks that is 1F1B whose weight gradients come, on rank r, r input gradients after their
    own: PyTorch's interleaved-zb with one chunk.

    >>> print(*zb_h1(1, 2, microbatches=3))
    F0 I0 F1 I1 W0 F2 I2 W1 W2
    """
    return iter(plan(ranks, microbatches, ranks, costs_of(costs))[rank])
