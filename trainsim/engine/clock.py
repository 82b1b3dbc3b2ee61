"""
SimPy's clock, and what the engine does with it beyond SimPy's public face.

It is all here, so that a new version of SimPy has one file to break (pyproject pins 4.1). Three things save what
the public way would cost at every kernel: an event that fires later without a process of its own, plain calls
instead of processes, and taking the waiters off an event that stands on the agenda at the wrong time, in place of
interrupting a process and cancelling a timeout. The others look at the agenda, and put off what stands there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from simpy.core import Environment
from simpy.events import NORMAL, URGENT, Event, EventPriority, Timeout

__all__ = ["LAST", "LATE", "NORMAL", "URGENT", "Clock", "Event", "Timeout", "owner_of"]

LATE = EventPriority(2)  # after all that happens at the same instant
LAST = EventPriority(3)  # after that, too


class Clock(Environment):
    """A SimPy environment, in seconds."""

    def fire(self, event: Event, delay: float = 0.0, value: Any = None) -> None:
        """Let *event* happen after *delay*; ``Event.succeed`` knows no delay, ``Timeout`` no existing event."""
        event._ok, event._value = True, value
        self.schedule(event, NORMAL, delay)

    def call(self, function: Callable[[Event], None], delay: float, priority: EventPriority = NORMAL) -> Event:
        """Call *function* after *delay*, with the event that is returned."""
        event = Event(self)
        event.callbacks.append(function)
        event._ok, event._value = True, None
        self.schedule(event, priority, delay)
        return event

    def postpone(self, event: Event) -> Event:
        """A fresh event with the waiters of *event*, which stands on the agenda and now fires for nobody."""
        fresh = Event(self)
        fresh.callbacks, event.callbacks = event.callbacks, []
        return fresh

    def agenda(self) -> list[tuple[float, int, Event]]:
        """What is to happen, in its order: when, with which priority, and what."""
        return [(at, priority, event) for at, priority, _, event in sorted(self._queue)]

    def put_off(self, events: set[Event], seconds: float) -> None:
        """Let *events*, which stand on the agenda, happen so much later; their order stays."""
        self._queue[:] = [
            (at + seconds if event in events else at, priority, number, event)
            for at, priority, number, event in self._queue
        ]
        heapq.heapify(self._queue)

    def run_out(self) -> None:
        """Let all happen that is on the agenda, and what comes of it: ``run`` without a call for each event."""
        queue = self._queue
        while queue:
            self._now, _, _, event = heapq.heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)

    def rewind(self) -> None:
        """Start again at 0; nothing is on the agenda."""
        self._now = 0

    def scheduled(self) -> int:
        """How many events were ever put on the agenda."""
        return next(self._eid)


def owner_of(callback: Any) -> Any:
    """What a callback belongs to."""
    return callback.__self__
