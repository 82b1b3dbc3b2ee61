"""
The steady state of a pipeline is carried out once.

Times are whole ticks, so a state that repeats does so to the last bit: when an island looks as it did some microbatches
ago, and the programs of its chains go on as they did, then so does all that happens until they do not. What stands on
the agenda is put off by so many periods, and the rows of the last one are written again.

Looking costs next to nothing: first only where the chains are is compared with one earlier moment, which is replaced
more and more seldom (Brent 1980). Only when that repeats are whole states compared.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from trainsim.engine.actor import Actor, posters
from trainsim.engine.chain import Chain
from trainsim.engine.clock import LAST, Clock, Event
from trainsim.engine.islands import islands
from trainsim.engine.leap import Island, State
from trainsim.engine.track import MANY, Track

LOOKS = 16  # for which a moment is remembered at least
FADES = 4  # or this part of all looks


def watch(
    clock: Clock, actors: Sequence[Actor], chains: Sequence[Chain], lanes: Sequence[Chain], changes: Sequence[float]
) -> None:
    """Have what repeats in *chains* carried out once. They have not started; *lanes* are those of their messages, and
    *changes* the times at which a resource does not stay as it is."""
    if all(int(chain.tasks.microbatch.max(initial=0)) < MANY for chain in chains):
        return
    tracks = [Track(chain) for chain in chains]
    for classes in islands(tracks, posters(actors)):
        some = [track for track in tracks if track.chain.rank_class in classes]
        reference = max(some, key=lambda track: int(track.times[track.often].max(initial=0)))
        if reference.often.any():
            own_lanes = [lane for lane in lanes if lane.rank_class in classes]
            island = Island(clock, some, [actors[c] for c in sorted(classes)], own_lanes, len(chains) + len(lanes))
            island.changes = changes
            Watcher(island, reference).go_on()


@dataclass(frozen=True, slots=True)
class Glance:
    """Where the chains of an island are at some moment: task, operation, and when they last posted something."""

    now: float
    chains: list[tuple[int, int, float]]

    def repeats(self, earlier: Glance) -> bool:
        """Whether it may be that moment again: all is as far as it was, and no chain is elsewhere in its task."""
        passed = self.now - earlier.now
        return all(
            at == before and (posted - last == passed or posted == last)
            for (_, at, posted), (_, before, last) in zip(self.chains, earlier.chains, strict=True)
        )


class Watcher:
    """Looks at an island each time that its *reference* chain begins a task of one kind.

    ``glance`` is a moment to compare with; once it has come again the whole ``state`` is known of one.
    """

    def __init__(self, island: Island, reference: Track):
        self.island, self.reference = island, reference.chain
        self.candidates = reference.candidates()
        self.reference.passed = self.passed
        self.start_anew()

    def start_anew(self) -> None:
        self.looks = self.age = 0
        self.pause = 1
        self.glance: Glance | None = None
        self.state: State | None = None

    def go_on(self, rest: int = 0) -> None:
        """Look again at the next candidate but *rest*."""
        behind = bisect_right(self.candidates, self.reference.task) + rest
        self.reference.mark = self.candidates[behind] if behind < len(self.candidates) else sys.maxsize

    def passed(self) -> None:
        """The reference begins a candidate: look when all that happens at this instant has happened."""
        self.reference.mark = sys.maxsize
        self.island.clock.call(self.look, 0.0, LAST)

    def look(self, _: Event) -> None:
        """Leap if this moment is like one before; what has not come again for long is forgotten, for a while."""
        self.looks += 1
        self.age += 1
        rest, patience = 0, max(LOOKS, self.looks // FADES)
        glance = Glance(self.island.clock.now, [(c.task, c.at, c.posted) for c in self.island.chains])
        if self.glance is None:
            self.keep(glance, None)
        elif glance.repeats(self.glance):
            rest = self.compare(glance)
        elif self.age > patience:
            self.glance, rest = None, patience if self.looks > FADES * LOOKS else 0
        self.go_on(rest)

    def compare(self, glance: Glance) -> int:
        """Whole states, as chains are where they were; for how long not to look again."""
        reference = self.reference
        after = None if reference.over else self.island.state(reference.tasks[reference.task][1])
        before = self.state
        if before is not None and after is not None and self.island.leap(before, after):
            self.start_anew()
            return 0
        self.keep(glance, after)
        if before is not None:
            self.pause *= 2
        return self.pause - 1

    def keep(self, glance: Glance, state: State | None) -> None:
        self.glance, self.state, self.age = glance, state, 0
