"""
Leaps: an island that looks as it did a period ago, and has the same ahead of it, is put as many periods further on.

What stands on the agenda is put off, everything that lives is moved, flags are set, and the rows of the last period
are written again for each that was left out.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainsim.contracts.record import Extent, Period
from trainsim.engine.actor import Actor
from trainsim.engine.chain import Chain
from trainsim.engine.clock import Clock, Event, owner_of
from trainsim.engine.flags import Flags, alike
from trainsim.engine.fluid import Activity
from trainsim.engine.relative import Foreign, Move, View
from trainsim.engine.track import Track

WORTH = 2  # periods that a leap must be long


@dataclass(frozen=True, slots=True)
class State:
    """An island at some moment: its ``view``, what stands on the agenda for it, and what the view leaves out.

    The tasks of its chains, flags of its actors, numbers of their posts, extents of its records.
    """

    view: View
    events: list[Event]
    tasks: tuple[int, ...]
    flags: tuple[bytes, ...]
    posts: tuple[int, ...]
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """What a period brings besides rows: how many microbatches further, how many tasks each chain that moves does, and
    for which microbatches each flag is set (1)."""

    microbatches: int
    tasks: dict[Chain, int]
    flags: tuple[bytes, ...]


class Island:
    """Classes that have nothing to do with others while they are steady; *lanes* are theirs, *records* those of all."""

    def __init__(
        self, clock: Clock, tracks: Sequence[Track], actors: Sequence[Actor], lanes: Sequence[Chain], records: int
    ):
        self.clock, self.tracks, self.records = clock, tracks, records
        self.classes = frozenset(actor.number for actor in actors)
        self.flags: list[Flags] = [flags for actor in actors for flags in actor.flags.values()]
        self.turns = [turn for actor in actors for turn in actor.turns.values()]
        self.chains = [track.chain for track in tracks]
        self.writers = [*self.chains, *lanes]
        self.changes: Sequence[float] = ()  # times at which resources do not stay as they are, rising

    def state(self, microbatch: int) -> State | None:
        """How it is now, or None if it is not alone; to count from the *microbatch* of some chain."""
        rows = {chain.number: len(chain.rows) for chain in self.writers}
        view = View(self.clock.now, microbatch, rows, self.classes)
        agenda = [entry for entry in self.clock.agenda() if self._mine(entry[2])]
        try:
            for chain in self.chains:
                view.number(chain)
            view.complete(agenda)
        except Foreign:
            return None
        return State(
            view=view,
            events=[event for _, _, event in agenda],
            tasks=tuple(chain.task for chain in self.chains),
            flags=tuple(bytes(flags.known) for flags in self.flags),
            posts=tuple(turn[0] for turn in self.turns),
            extents=tuple(chain.rows.extent for chain in self.writers),
        )

    def _mine(self, event: Event) -> bool:
        """Whether *event* means something to it."""
        owner = owner_of(event.callbacks[0]) if event.callbacks else None
        if isinstance(owner, Activity) and not owner.expects(event):
            return False
        return getattr(owner, "rank_class", -1) in self.classes

    def leap(self, before: State, after: State) -> bool:
        """From *after*, which is now, as many periods further on as will be like the last, if they are worth it."""
        if before.view.facts != after.view.facts or before.view.origin >= after.view.origin:
            return False
        advance = self._advance(before, after)
        most = self._until_changed(before.view.now, after.view.now)
        times = 0 if advance is None or not most else min(most, self._times(before, advance))
        if advance is None or times < WORTH:
            return False
        rows = np.zeros(self.records, np.int64)
        for chain, old, new in zip(self.writers, before.extents, after.extents, strict=True):
            rows[chain.number] = new.rows - old.rows
        period = Period(after.view.now - before.view.now, after.view.origin - before.view.origin, rows)
        self._move(after, advance, period, times)
        self._write(before, after, period, times)
        return True

    def _advance(self, before: State, after: State) -> Advance | None:
        """What happened since *before*; None if a chain does not move that waits for more than an event of its own."""
        tasks: dict[Chain, int] = {}
        for track, first, last in zip(self.tracks, before.tasks, after.tasks, strict=True):
            if last > first:
                tasks[track.chain] = last - first
            elif not track.chain.over and track.chain.operation.reach().groups:
                return None
        known = zip(before.flags, after.flags, strict=True)
        flags = tuple(bytes(_bits(new) & ~_bits(old)) for old, new in known)
        return Advance(after.view.origin - before.view.origin, tasks, flags)

    def _times(self, before: State, advance: Advance) -> int:
        """How many more periods will be like the last."""
        times = sys.maxsize
        touched = [(flags, [microbatch]) for flags, microbatch in before.view.flags]
        for track, first in zip(self.tracks, before.tasks, strict=True):
            tasks = advance.tasks.get(track.chain, 0)
            if tasks:
                if not track.steady(first, first + tasks):
                    return 0
                times = min(times, track.repeats(first, tasks, advance.microbatches))
                touched += ((flags, at.tolist()) for flags, at in track.touched(first, first + tasks))
        about: dict[Flags, set[int]] = {}
        for flags, microbatches in touched:
            about.setdefault(flags, set()).update(microbatches)
        for flags, old, fresh in zip(self.flags, before.flags, advance.flags, strict=True):
            if fresh[-1]:
                return 0
            alike_for = (alike(old, fresh, at, advance.microbatches) for at in about.get(flags, ()))
            times = min([times, *alike_for, self._until_woken(flags, fresh, advance)])
        return times

    def _until_changed(self, before: float, after: float) -> int:
        """For how many more periods, of which the last was from *before* to *after*, resources stay as they were."""
        ahead = bisect_right(self.changes, before)
        if ahead == len(self.changes):
            return sys.maxsize
        times = int((self.changes[ahead] - after) // (after - before))
        return max(0, times - 1)

    def _until_woken(self, flags: Flags, fresh: bytes, advance: Advance) -> int:
        """For how many more periods a chain that does not move is left waiting, if each sets *fresh*, further on."""
        times = sys.maxsize
        for microbatch, event in flags.waiting.items():
            if not all(owner_of(callback).chain in advance.tasks for callback in event.callbacks):
                ahead, rest = np.divmod(microbatch - np.flatnonzero(_bits(fresh)), advance.microbatches)
                times = min([times, *(ahead[(rest == 0) & (ahead > 0)] - 1).tolist()])
        return times

    def _move(self, after: State, advance: Advance, period: Period, times: int) -> None:
        """All that lives, what stands on the agenda, and the flags that would have been set."""
        self.clock.put_off(set(after.events), times * period.seconds)
        tasks = {chain: times * count for chain, count in advance.tasks.items()}
        move = Move(times * period.seconds, times * period.microbatches, times * period.rows, tasks)
        for thing in after.view.things:
            thing.moved(move)
        move.complete()
        later = np.arange(1, times + 1)[:, None] * period.microbatches
        for flags, fresh in zip(self.flags, advance.flags, strict=True):
            _bits(flags.known)[(np.flatnonzero(_bits(fresh)) + later).ravel()] = 1

    def _write(self, before: State, after: State, period: Period, times: int) -> None:
        """The rows of all periods that were left out, and how many posts there would have been."""
        for chain, since in zip(self.writers, before.extents, strict=True):
            chain.rows.repeat(since, chain.number, times, period)
        for turn, old, new in zip(self.turns, before.posts, after.posts, strict=True):
            turn[1] += times * (new - old)


def _bits(known: bytes | bytearray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(known, np.uint8)
