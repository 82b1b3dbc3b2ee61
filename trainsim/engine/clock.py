"""
SimPy's clock, and the three things that the engine does with it beyond SimPy's public face.

They are all here, so that a new version of SimPy has one file to break (pyproject pins 4.1). Each saves something that
the public way would cost at every kernel: an event that fires later without a process of its own, a plain call
instead of a process, and taking the waiters off an event that stands on the agenda at the wrong time, in place of
interrupting a process and cancelling a timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simpy.core import Environment
from simpy.events import NORMAL, Event, EventPriority, Timeout

__all__ = ["LATE", "NORMAL", "Clock", "Event", "Timeout"]

LATE = EventPriority(2)  # after all that happens at the same instant


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

    def scheduled(self) -> int:
        """How many events were ever put on the agenda."""
        return next(self._eid)
