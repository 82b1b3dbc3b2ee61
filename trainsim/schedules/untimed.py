"""Whether an order can be carried out at all, without any times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainsim.schedules import Pair, Slot, flat
from trainsim.schedules.messages import Links, PipelineMessage
from trainsim.schedules.placement import StagePlacement


def waits_for_ever(
    rows: Sequence[Iterable[Slot | Pair]], chunks: int, placement: StagePlacement = StagePlacement.LOOP
) -> list[Slot | Pair]:
    """The pass at which each rank is stuck; none if the *rows*, one per rank, can be carried out.

    >>> from trainsim.schedules import schedules
    >>> first, last = (list(schedules["1f1b"](rank, 2, microbatches=2)) for rank in (0, 1))
    >>> waits_for_ever([first, last], chunks=1)
    []
    >>> print(*waits_for_ever([[first[k] for k in (0, 2, 1, 3)], last[2:] + last[:2]], chunks=1))
    B0 F1
    """
    orders = [list(row) for row in rows]
    links = [Links(rank=rank, ranks=len(orders), chunks=chunks, placement=placement) for rank in range(len(orders))]
    sent: set[PipelineMessage] = set()
    at = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                slots = list(flat((order[at[rank]],)))
                if not sent.issuperset(message for slot in slots for message in links[rank].receives(slot)):
                    break
                sent.update(message for slot in slots for message in links[rank].sends(slot))
                at[rank] += 1
                moved = True
    return [order[k] for k, order in zip(at, orders, strict=True) if k < len(order)]
