"""
Resources that lack a part of their capacity for a while: an outage is an activity that takes that part, and loads
nothing. Who shares the resource with it gets what is left; if that is nothing, it waits until the outage is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.contracts.exact import ticks
from trainsim.contracts.system import Outage
from trainsim.engine.clock import Event
from trainsim.engine.fairshare import Use
from trainsim.engine.fluid import Phases, SharedResources


def changes(outages: Sequence[Outage], tick: float) -> tuple[float, ...]:
    """All times at which an outage begins or ends, rising."""
    return tuple(sorted({ticks(time, tick) for outage in outages for time in (outage.since, outage.until)}))


def begin_outages(shared: SharedResources, outages: Sequence[Outage]) -> None:
    """Have all *outages* happen at their time; two classes of resources may have the same, and one class has each
    once."""
    for outage in sorted(set(outages)):
        since, until = (ticks(time, shared.tick) for time in (outage.since, outage.until))
        if until > since:
            use = shared.uses.number(Use(lost=((outage.resource, outage.lost),)))
            coming = _Coming(shared, shared.uses.phases((until - since,), (use,)))
            shared.clock.call(coming.begin, since)


class _Coming:
    """An outage that is yet to begin, and then one that is on; it belongs to no class of ranks."""

    rank_class = -1

    def __init__(self, shared: SharedResources, phases: Phases):
        self.shared, self.phases = shared, phases

    def begin(self, _: Event) -> None:
        done = Event(self.shared.clock)
        done.callbacks.append(self.over)
        self.shared.start(self.phases, done)

    def over(self, _: Event) -> None:
        """Nobody waits for it."""
