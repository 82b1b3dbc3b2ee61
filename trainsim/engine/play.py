"""The operation that carries out a whole stretch as one event, from what its rehearsal has shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainsim.engine.chain import Cause, Chain
from trainsim.engine.clock import Clock, Event
from trainsim.engine.flags import Flags
from trainsim.engine.rehearsal import OUTSIDE, Deed, Movement, Room, Score
from trainsim.engine.relative import Facts, Move, Reach, View
from trainsim.engine.running_operations import Await
from trainsim.engine.snippet import Snippet


class Company:
    """Those who go through a stretch together: the members of groups that meet in there, or one class alone.

    ``chains`` are the compute chain of each and those that follow it.
    """

    def __init__(self, clock: Clock, room: Room, score: Score, chains: Sequence[Sequence[Chain]]):
        self.clock, self.room, self.score = clock, room, score
        self.chains = [chain for own in chains for chain in own]
        self.own = [range(k, k + len(own)) for k, own in zip(score.leaders, chains, strict=True)]
        self.waiting: dict[int, Performance] = {}

    def performance(self, turn: int) -> Performance:
        """The one that is a member's number *turn*; it is forgotten once all have come."""
        known = self.waiting.pop(turn, None) or Performance(self)
        known.absent -= 1
        if known.absent:
            self.waiting[turn] = known
        return known


class Play:
    """Carry out a stretch, as *member* of a company, in the way in which it was rehearsed.

    Compute goes on ``tasks`` further, before operation ``at``. Where something is done that others see before all needs
    are there (``patient`` is false), and not all are, it goes on operation by operation instead.
    """

    __slots__ = ("at", "company", "leaves", "member", "needs", "patient", "tasks", "turn")

    def __init__(self, company: Company, member: int, snippet: Snippet, tasks: int):
        self.company, self.member = company, member
        self.tasks, self.at = tasks, snippet.last + (tasks == 0)
        self.needs, self.leaves, self.patient = snippet.needs, snippet.leaves, snippet.patient
        self.turn = 0

    def begin(self, chain: Chain, microbatch: int) -> Event | None:
        missing = [k for k, (need, ahead) in enumerate(self.needs) if not need.flags.known[microbatch + ahead]]
        if missing and not self.patient:
            return None
        performance = self.company.performance(self.turn)
        self.turn += 1
        chain.posted, chain.pending = self.company.clock.now, performance
        chain.waits = self, microbatch
        return performance.joined(self, chain, microbatch, missing)

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        performance: Performance = chain.pending
        performance.write(self.member, chain, microbatch)
        for flags, ahead in self.leaves:
            flags.known[microbatch + ahead] = 1
        chain.task += self.tasks
        chain.at = self.at - 1

    def reach(self) -> Reach:
        """Its own operations are still among those of the tasks."""
        return Reach()

    def relative(self, chain: Chain, view: View) -> Facts:
        return view.time(chain.posted), view.cause(chain.cause), view.number(chain.pending)

    def moved(self, chain: Chain, by: Move) -> None:
        """The performance moves by itself; turns need not: all members go equally far."""


class Missing:
    """A need that is not there yet: number *until* of what a performance waits for."""

    __slots__ = ("chain", "flags", "microbatch", "performance", "until")

    def __init__(self, performance: Performance, until: int, chain: Chain, flags: Flags, microbatch: int):
        self.performance, self.until, self.chain = performance, until, chain
        self.flags, self.microbatch = flags, microbatch
        flags.wait(microbatch, Event(performance.clock)).callbacks.append(self.came)

    def came(self, event: Event) -> None:
        self.performance.came(self.until, event.value)

    @property
    def rank_class(self) -> int:
        return self.flags.rank_class

    def relative(self, view: View) -> Facts:
        return view.number(self.performance), self.until, self.flags, self.microbatch - view.origin

    def moved(self, by: Move) -> None:
        by.wait(self.flags, self.microbatch)
        self.microbatch += by.microbatches


class Due:
    """A deed of a performance that is yet to be done."""

    __slots__ = ("deed", "performance")

    def __init__(self, performance: Performance, deed: Deed):
        self.performance, self.deed = performance, deed

    def do(self, _: Event) -> None:
        """Do it as that chain, which waits for the end of the performance meanwhile."""
        chain, performance = self._chain, self.performance
        cause = chain.cause
        chain.cause = performance.cause(self.deed.cause, own=False)
        self.deed.operation.begin(chain, performance.microbatch + self.deed.microbatch)
        chain.cause, chain.pending = cause, performance

    @property
    def _chain(self) -> Chain:
        company = self.performance.company
        return company.chains[company.own[self.deed.member].start]

    @property
    def rank_class(self) -> int:
        return self._chain.rank_class

    def relative(self, view: View) -> Facts:
        return view.number(self.performance), self.deed

    def moved(self, by: Move) -> None:
        """The performance moves by itself."""


class Performance:
    """A stretch under way. ``comes`` says after how many seconds each thing came that it waits for, but for what
    is ``missing``.

    ``causes`` are what let it come then, and ``because`` what that let happen at once. ``rows`` are those that each
    chain had before.
    """

    def __init__(self, company: Company):
        self.company, self.clock = company, company.clock
        self.began = self.clock.now
        self.absent = len(company.own)
        self.missing: dict[int, Missing] = {}
        self.comes = [0.0] * len(company.score.untils)
        self.causes: list[Cause | None] = [None] * len(self.comes)
        self.because = list(self.causes)
        self.rows = [0] * len(company.chains)
        self.done: list[Event] = [Event(self.clock) for _ in company.own]
        self.movement: Movement | None = None
        self.microbatch = 0

    def joined(self, play: Play, chain: Chain, microbatch: int, missing: Sequence[int]) -> Event:
        """A member is there, and what it needs, but for *missing*."""
        start = self.company.score.starts[play.member]
        self.comes[start] = self.clock.now - self.began
        self.causes[start], self.because[start] = chain.cause, chain.because()
        for place in self.company.own[play.member]:
            self.rows[place] = len(self.company.chains[place].rows)
        self.microbatch = microbatch
        for k in missing:
            need, ahead = play.needs[k]
            until = start + 1 + k
            self.missing[until] = Missing(self, until, chain, need.flags, microbatch + ahead)
            chain.waits = need, microbatch + ahead
        self._go_on()
        return self.done[play.member]

    def came(self, until: int, cause: Cause | None) -> None:
        """What it waited for has come."""
        self.comes[until], self.causes[until] = self.clock.now - self.began, cause
        del self.missing[until]
        self._go_on()

    def _go_on(self) -> None:
        """Once all have come with all that they need, all is known."""
        if self.absent or self.missing:
            return
        self.movement = self.company.room.movement(self.company.score, tuple(self.comes))
        passed = self.clock.now - self.began
        for deed in self.movement.deeds:
            assert deed.after >= passed, "others see something of a stretch before all is known of it"
            self.clock.call(Due(self, deed).do, deed.after - passed)
        for done, ending in zip(self.done, self.movement.endings, strict=True):
            self.clock.fire(done, ending.seconds - passed)

    def cause(self, cause: Cause | None, *, own: bool) -> Cause | None:
        """A row of the rehearsal as a row of the run; *own*: as the chain sees it that what came let go on."""
        if cause is None:
            return None
        which, row = cause
        if which == OUTSIDE:
            return self.causes[row] or (None if own else self.because[row])
        return self.company.chains[which].number, self.rows[which] + row

    def write(self, member: int, chain: Chain, microbatch: int) -> None:
        """Write the rows of a member's chains, and let those that follow compute stand where they stand now."""
        company, movement = self.company, self.movement
        assert movement is not None
        bases = [
            number for player, base in zip(company.chains, self.rows, strict=True) for number in (player.number, base)
        ]
        for place in company.own[member]:
            player, voice, base = company.chains[place], movement.voices[place], self.rows[place]
            record = player.rows
            player.add((-1 - voice.passage, microbatch, self.began, len(record.bases)))
            record.bases.extend(bases)
            record.hidden += voice.rows - 1
            record.tasks.extend([base + row for row in voice.tasks])
            for row, of in voice.outside:
                cause = self.cause((OUTSIDE, of), own=player is chain and of == company.score.starts[member])
                if cause is not None:
                    record.causes.extend((base + row, *cause))
            if player is not chain:
                _skip(player, len(voice.tasks))
        chain.cause = self.cause(movement.endings[member].cause, own=True)

    @property
    def rank_class(self) -> int:
        return self.company.chains[0].rank_class

    def relative(self, view: View) -> Facts:
        """Who is there since when, and what is missing."""
        chains = zip(self.company.chains, self.rows, strict=True)
        rows = tuple(view.cause((player.number, row)) for player, row in chains)
        causes = tuple(map(view.cause, (*self.causes, *self.because)))
        waiting = tuple(None if done.processed else view.event(done) for done in self.done)
        missing = tuple(map(view.number, self.missing.values()))
        return (self.company, view.time(self.began), self.absent, missing, tuple(self.comes), rows, causes,
                waiting, self.microbatch - view.origin, self.movement)  # fmt: skip

    def moved(self, by: Move) -> None:
        self.began += by.seconds
        self.causes, self.because = (list(map(by.cause, causes)) for causes in (self.causes, self.because))
        self.rows = [row + by.rows[player.number] for player, row in zip(self.company.chains, self.rows, strict=True)]
        self.microbatch += by.microbatches


def _skip(chain: Chain, tasks: int) -> None:
    """Move a chain, which rests before a task, to where it rests next."""
    assert isinstance(chain.operation, Await)
    microbatch, flags = chain.tasks[chain.task][1], chain.operation.flags
    event, flags.known[microbatch] = flags.waiting.pop(microbatch), 1
    chain.task += tasks
    if not chain.over:
        assert isinstance(chain.operation, Await)
        chain.waits = chain.operation, chain.tasks[chain.task][1]
        chain.operation.flags.wait(chain.waits[1], event)
