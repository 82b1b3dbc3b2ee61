"""How long an order takes where stages have times of their own, nothing is shared and messages are asynchronous."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainsim.schedules import Slot, Work
from trainsim.schedules.messages import Links, PipelineMessage
from trainsim.schedules.placement import StagePlacement


def makespan(
    rows: Sequence[Sequence[Slot]],
    seconds: Callable[[int, Work], float],
    *,
    chunks: int,
    message: float,
    placement: StagePlacement = StagePlacement.LOOP,
) -> float:
    """Seconds until the last pass of an order that has a row of slots per rank; *seconds* are those of (stage, pass).

    The order must not wait for ever.

    >>> rows = [[Slot(Work.F, 0), Slot(Work.B, 0)]] * 2
    >>> makespan(rows, lambda stage, work: 2.0 if work is Work.B else 1.0, chunks=1, message=0.5)
    7.0
    """
    links = [Links(rank=rank, ranks=len(rows), chunks=chunks, placement=placement) for rank in range(len(rows))]
    arrived: dict[PipelineMessage, float] = {}
    position, now = [0] * len(rows), [0.0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while position[rank] < len(row):
                slot = row[position[rank]]
                inputs = links[rank].receives(slot)
                if any(needed not in arrived for needed in inputs):
                    break
                start = max([now[rank], *(arrived[needed] for needed in inputs)])
                now[rank] = start + seconds(links[rank].stage(slot), slot.work)
                arrived.update((sent, now[rank] + message) for sent in links[rank].sends(slot))
                position[rank] += 1
                moved = True
    return max(now)
