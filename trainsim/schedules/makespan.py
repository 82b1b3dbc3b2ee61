"""How long an order takes where stages have times of their own, nothing is shared and messages are asynchronous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from trainsim.schedules import Slot, Work
from trainsim.schedules.messages import Links
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
    ways = [_Ways(Links(rank=rank, ranks=len(rows), chunks=chunks, placement=placement), seconds)
            for rank in range(len(rows))]  # fmt: skip
    arrived: dict[Way, dict[int, float]] = defaultdict(dict)
    position, now = [0] * len(rows), [0.0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            for work, microbatch, chunk in row[position[rank] :]:
                source, sent, takes = ways[rank][work, chunk]
                start = now[rank]
                if source is not None:
                    there = arrived[source].get(microbatch)
                    if there is None:
                        break
                    start = max(start, there)
                now[rank] = start + takes
                if sent is not None:
                    arrived[sent][microbatch] = now[rank] + message
                position[rank] += 1
                moved = True
    return max(now)


Way = tuple[Work, int]
"""What is sent, and by which stage, whatever the microbatch."""


class _Ways(dict[tuple[Work, int], tuple[Way | None, Way | None, float]]):
    """(Pass, chunk) of a rank -> what it needs from another rank, what it hands to another, and its seconds."""

    def __init__(self, links: Links, seconds: Callable[[int, Work], float]):
        super().__init__()
        self.links, self.seconds = links, seconds

    def __missing__(self, key: tuple[Work, int]) -> tuple[Way | None, Way | None, float]:
        slot = Slot(key[0], 0, key[1])
        needed, sent = (next((message[:2] for message in some), None)
                        for some in (self.links.receives(slot), self.links.sends(slot)))  # fmt: skip
        self[key] = found = needed, sent, self.seconds(self.links.stage(slot), slot.work)
        return found
