"""
The state of some classes as it looks from one instant, whenever that is: equal views go on equally.

Everything that lives while the engine runs says of itself what matters from here on (``relative``): times before now,
rows before the last, microbatches after that of a chain that is followed. And it can be put elsewhere (``moved``). An
operation says so for the chain that is in the midst of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trainsim.contracts.record import Ints
from trainsim.engine.clock import Event, owner_of

if TYPE_CHECKING:
    from trainsim.engine.chain import Cause, Chain
    from trainsim.engine.flags import Flags

Facts = tuple[Any, ...]


class Reach(NamedTuple):
    """What an operation has to do with others: ``resources`` that it uses, ``groups`` that it meets, ``flags`` that it
    sets or waits for. ``named``: those of a microbatch of its own, whatever that of the task."""

    resources: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    flags: tuple[Flags, ...] = ()
    named: bool = False


class Living(Protocol):
    """What a view is made of."""

    @property
    def rank_class(self) -> int: ...

    def relative(self, view: View) -> Facts: ...

    def moved(self, by: Move) -> None: ...


class Foreign(Exception):
    """Something that belongs to other classes is part of a view."""


class View:
    """A state of *classes* as seen from *now*, with *microbatch* and *rows* (by number of chain) to count from.

    ``flags`` are those that something under way is going to set, with the microbatch.
    """

    def __init__(self, now: float, microbatch: int, rows: dict[int, int], classes: frozenset[int]):
        self.now, self.origin, self.rows, self.classes = now, microbatch, rows, classes
        self.flags: list[tuple[Flags, int]] = []
        self.things: dict[Living, int] = {}
        self._new: list[Living] = []
        self.facts: list[Facts] = []

    def time(self, at: float) -> float:
        return self.now - at

    def cause(self, cause: Cause | None) -> Cause | None:
        return None if cause is None else (cause[0], cause[1] - self.rows.get(cause[0], 0))

    def flag(self, flags: Flags, microbatch: int) -> Facts:
        """What is about to set a flag."""
        self.flags.append((flags, microbatch))
        return flags, microbatch - self.origin

    def number(self, thing: Living) -> int:
        """The number of *thing*, which is part of the view from now on."""
        number = self.things.get(thing)
        if number is None:
            if thing.rank_class not in self.classes:
                raise Foreign
            number = self.things[thing] = len(self.things)
            self._new.append(thing)
        return number

    def event(self, event: Event) -> Facts:
        """Who is told when *event* happens, in their order."""
        return tuple((callback.__name__, self.number(owner_of(callback))) for callback in event.callbacks)

    def complete(self, agenda: Iterable[tuple[float, int, Event]]) -> None:
        """Take in what is on the agenda, and what all that is in the view is made of."""
        for at, priority, event in agenda:
            value = None if event.value is None else self.number(event.value)
            self.facts.append((self.time(at), priority, self.event(event), value))
        for thing in self._new:  # grows meanwhile
            self.facts.append(thing.relative(self))


class Move:
    """Puts a state *seconds* later, as many microbatches and rows (by number of chain) further on, and each chain as
    many *tasks*; a chain that is not in there stays where it is."""

    def __init__(self, seconds: float, microbatches: int, rows: Ints, tasks: dict[Chain, int]):
        self.seconds, self.microbatches, self.rows, self.tasks = seconds, microbatches, rows.tolist(), tasks
        self._waiting: list[tuple[Flags, int, Event]] = []

    def cause(self, cause: Cause | None) -> Cause | None:
        return None if cause is None else (cause[0], cause[1] + self.rows[cause[0]])

    def wait(self, flags: Flags, microbatch: int) -> None:
        """Who waits for *microbatch* of *flags* waits for a later one."""
        event = flags.waiting.pop(microbatch, None)
        if event is not None:  # else somebody else who waits for it was here
            self._waiting.append((flags, microbatch + self.microbatches, event))

    def complete(self) -> None:
        """When all are moved: nobody takes the place of one who has yet to leave it."""
        for flags, microbatch, event in self._waiting:
            known = flags.wait(microbatch, event)
            if known is not event:  # somebody who stays where he is waits for it, and has done so for longer
                known.callbacks += event.callbacks
