"""Named events of a rank: which are set, and who waits for one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainsim.engine.clock import Event

if TYPE_CHECKING:
    from trainsim.engine.chain import Cause


class Flags:
    """One event of one rank class by microbatch; the last place is for microbatch -1.

    ``known`` is 1 where it is set, ``waiting`` has the event that somebody waits for where it is not.
    """

    __slots__ = ("known", "rank_class", "waiting")

    def __init__(self, rank_class: int, top: int):
        self.rank_class = rank_class
        self.known = bytearray(top)
        self.waiting: dict[int, Event] = {}

    def set(self, microbatch: int, cause: Cause | None) -> None:
        """Set it; who waits for it learns why it goes on."""
        self.known[microbatch] = 1
        event = self.waiting.pop(microbatch, None)
        if event is not None:
            event.succeed(cause)

    def forget(self, microbatch: int) -> None:
        """Nobody has set it, and nobody waits for it."""
        self.known[microbatch] = 0
        self.waiting.pop(microbatch, None)

    def wait(self, microbatch: int, event: Event) -> Event:
        """What happens when it is set: *event*, unless somebody waits already."""
        return self.waiting.setdefault(microbatch, event)


def alike(known: bytes, fresh: bytes, at: int, by: int) -> int:
    """For how many more periods a flag is as it was at microbatch *at*, each time *by* microbatches further on.

    *known* were set before; a period sets *fresh*, each time as much further on.

    >>> known, fresh = bytes([1, 1, 1, 0, 0, 0, 1, 0, 0]), bytes([0, 0, 0, 1, 0, 0, 0, 0, 0])
    >>> alike(known, fresh, 0, 1) == alike(known, fresh, 2, 1) == sys.maxsize
    True
    >>> alike(known, fresh, 4, 1)  # the one behind the next has been set by somebody else
    1
    """
    ahead, soon = known[at + by : -1 : by], fresh[at + by : -1 : by].find(1)
    if known[at]:
        gap = ahead.find(0)
        return sys.maxsize if gap < 0 or 0 <= soon <= gap else gap
    return min(place if place >= 0 else sys.maxsize for place in (ahead.find(1), soon))
