"""ZB-H2: zero bubbles between the steps, at twice the memory of 1F1B (Qi et al., 2023, arXiv 2401.10241)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.costs import costs_of
from trainsim.schedules.traits import Traits
from trainsim.schedules.zero_bubble import plan


@schedules.register(
    "zb-h2",
    "ZB-H2",
    "zb2p",
    "ZB2P",
    "zbh2",
    traits=Traits(
        split=True,
        planned=True,
        needs="2 microbatches per rank or more to have no bubble",
        source="arXiv 2401.10241; sail-sg zb.py",
    ),
    check=one_chunk,
)
def zb_h2(
    rank: int,
    ranks: int,
    *,
    microbatches: int,
    chunks: int = 1,
    group: int | None = None,
    costs: Sequence[float] | None = None,
) -> Iterator[Slot]:
    """Up to ``2 * ranks`` microbatches in flight, planned for *costs* (F, I, W and message; None: 1, 1, 1 and 0.001).

    Bubbles vanish only without a barrier between steps, and with 2 * ranks microbatches or more.

    >>> print(*zb_h2(0, 2, microbatches=4))
    F0 F1 F2 F3 I0 W0 I1 W1 I2 W2 I3 W3
    """
    return iter(plan(ranks, microbatches, 2 * ranks, costs_of(costs))[rank])
