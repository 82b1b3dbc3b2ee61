"""
Rehearsals: what the chains of a stretch do is carried out once on a clock of its own, and known from then on.

Nobody outside can make any of them early or late but by the events that they wait for. So all times follow from when
the stretch begins and when those events come, and since times are whole ticks, moving all of them changes no bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np

from trainsim.contracts.instructions import Columns
from trainsim.contracts.record import Passage, Run
from trainsim.engine.actor import Actor, actors_of
from trainsim.engine.chain import Cause, Chain, Compiled
from trainsim.engine.clock import URGENT, Clock, Event, Timeout
from trainsim.engine.compile import Compiler
from trainsim.engine.course import Course
from trainsim.engine.fluid import SharedResources
from trainsim.engine.relative import Facts, Move, Reach, View
from trainsim.engine.running_operations import Await, Set
from trainsim.errors import InvalidProgram
from trainsim.fold.quotient import Quotient

OUTSIDE = -1
"""The chain of a cause that is not in the rehearsal; the row is the number of the ``Until`` that stands for it."""


class Voice(NamedTuple):
    """What one chain does in a rehearsed stretch: the number of its passage, the rows there, those after each of its
    tasks but an unfinished one, and (row, cause) of rows that something outside let start."""

    passage: int
    rows: int
    tasks: tuple[int, ...]
    outside: tuple[tuple[int, int], ...]


class Deed(NamedTuple):
    """Something that others see, ``after`` seconds: an operation of one member, its microbatch from that of the
    stretch, and the row that let it happen (place of the chain among all, row in there)."""

    after: float
    member: int
    operation: Compiled
    microbatch: int
    cause: Cause | None


class Ending(NamedTuple):
    """When one member is through, in ``seconds``, and what lets it go on, if that is a row of another chain."""

    seconds: float
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class Movement:
    """A rehearsed stretch: what each chain does, what others see of it, and how it ends for each member."""

    voices: tuple[Voice, ...]
    deeds: tuple[Deed, ...]
    endings: tuple[Ending, ...]


class StandIn:
    """An operation that is in rehearsals only, and never part of a state that comes again."""

    def begin(self, chain: Chain, microbatch: int) -> Event | None:
        raise NotImplementedError

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        raise AssertionError("it waits for nobody")

    def reach(self) -> Reach:
        return Reach()

    def relative(self, chain: Chain, view: View) -> Facts:
        raise AssertionError("rehearsals are not watched")

    def moved(self, chain: Chain, by: Move) -> None:
        raise AssertionError("rehearsals are not watched")


class Tap(StandIn):
    """Stands for an operation that others see: notes when it is its turn, and why."""

    def __init__(self, clock: Clock, operation: Compiled | None):
        self.clock, self.operation, self.member = clock, operation, 0
        self.notes: list[Deed] = []

    def begin(self, chain: Chain, microbatch: int) -> None:
        self.notes.append(
            Deed(self.clock.now, self.member, self.operation, microbatch, chain.because())  # type: ignore[arg-type]
        )


class Until(StandIn):
    """Stands for the wait for something outside: it comes after ``seconds``."""

    def __init__(self, clock: Clock):
        self.clock, self.number = clock, 0
        self.seconds = 0.0

    def begin(self, chain: Chain, microbatch: int) -> Event | None:
        missing = self.seconds - self.clock.now
        return Timeout(self.clock, missing) if missing > 0 else None

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        chain.cause = OUTSIDE, self.number


Tasks = Sequence[tuple[Sequence[Compiled], int]]
"""Operations and microbatch of each task of one chain."""


@dataclass(frozen=True, slots=True)
class Lineup:
    """What one member does in a rehearsal: the tasks of its compute, then those of the chains that follow it.

    The first of ``untils`` is at its very beginning, and ``end`` at the end of compute; ``taps`` are in between.
    """

    chains: Sequence[Tasks]
    untils: Sequence[Until]
    taps: Sequence[Tap]
    end: Tap


class Score:
    """A stretch of all its members. ``leaders`` are the places of their compute chains; microbatches are counted from
    ``lowest``, itself counted from that of the stretch."""

    def __init__(self, members: Sequence[Lineup]):
        every = [tasks for member in members for tasks in member.chains]
        self.lowest = low = min(microbatch for tasks in every for _, microbatch in tasks)
        self.chains = [Course.of([(tuple(operations), m - low) for operations, m in tasks]) for tasks in every]
        self.taps = [tap for member in members for tap in member.taps]
        self.untils = [until for member in members for until in member.untils]
        for number, until in enumerate(self.untils):
            until.number = number
        for number, member in enumerate(members):
            for tap in member.taps:
                tap.member = number
        self.ends = [member.end for member in members]
        self.starts = [member.untils[0].number for member in members]
        self.leaders = list(accumulate((len(member.chains) for member in members[:-1]), initial=0))
        all_of = [(operation, m - low) for tasks in every for operations, m in tasks for operation in operations]
        self.flags = [
            (operation.flags, microbatch) for operation, microbatch in all_of if isinstance(operation, Set | Await)
        ]
        self.known: dict[tuple[float, ...], Movement] = {}


class Room:
    """Where rehearsals take place: the same system on another clock. ``passages`` and runs are those of the trace."""

    def __init__(self, quotient: Quotient, compiler: Compiler):
        self.runs = compiler.runs
        self.passages: list[Passage] = []
        self.clock = Clock()
        self.actors: list[Actor] = actors_of(quotient)
        shared = SharedResources(self.clock, quotient.resources, compiler.works.uses)
        self.compiler = Compiler(quotient, self.actors, self.clock, shared, merge=True, known=compiler)
        self._literal: dict[tuple[int, tuple[float, ...]], int] = {}

    def operations(self, actor: Actor, columns: Columns) -> Course:
        """The operations of some tasks of a class, as they are in this room."""
        return self.compiler.tasks(self.actors[actor.number], columns, np.zeros(len(columns.template), bool))

    def movement(self, score: Score, comes: tuple[float, ...]) -> Movement:
        """What comes of *score* if what it waits for comes after these seconds."""
        movement = score.known.get(comes)
        if movement is None:
            movement = score.known[comes] = self._rehearse(score, comes)
        return movement

    def can(self, score: Score) -> bool:
        """Whether *score* comes to its end."""
        try:
            self.movement(score, (0.0,) * len(score.untils))
        except InvalidProgram:
            for actor in self.actors:
                for turn in actor.turns.values():
                    turn[0] = 0
            for meetings in self.compiler.meetings:
                meetings.clear()
            return False
        return True

    def _rehearse(self, score: Score, comes: tuple[float, ...]) -> Movement:
        chains = [Chain(which, 0, str(which)) for which in range(len(score.chains))]
        for until, seconds in zip(score.untils, comes, strict=True):
            until.seconds = seconds
        for leader, start in zip(score.leaders, score.starts, strict=True):
            chains[leader].cause = OUTSIDE, start
        self.clock.rewind()
        for chain, tasks in zip(chains, score.chains, strict=True):
            chain.tasks = tasks
        for chain in (*(c for c in chains if c.number not in score.leaders), *(chains[k] for k in score.leaders)):
            self.clock.call(chain.start, 0.0, URGENT)  # those that follow compute are there first
        self.clock.run_out()
        for flags, microbatch in score.flags:
            flags.forget(microbatch)
        if not all(chain.over for chain in chains):
            raise InvalidProgram("a stretch of compute waits for what the chains that follow it do not do")
        voices = [self._voice(chain, score.lowest) for chain in chains]
        for leader in score.leaders:  # its last task may go on
            voices[leader] = voices[leader]._replace(tasks=voices[leader].tasks[:-1])
        deeds = [deed._replace(microbatch=deed.microbatch + score.lowest) for deed in _taken(score.taps)]
        ends = [_taken([end])[0].after for end in score.ends]
        causes = [chains[leader].cause for leader in score.leaders]
        return Movement(tuple(voices), tuple(deeds), tuple(map(Ending, ends, causes)))

    def _voice(self, chain: Chain, lowest: int) -> Voice:
        rows, table = chain.rows, np.frombuffer(chain.rows.table).reshape(-1, 4).T
        run = table[0].astype(np.int64)
        marks = iter(rows.marks)
        for row, count in zip(rows.marked[::2], rows.marked[1::2], strict=True):
            start = float(table[3][row])
            run[row] = self._with_ends(int(run[row]), tuple(mark - start for mark in islice(marks, count)))
        source, cause = np.full(len(run), -1, np.int64), np.full(len(run), -1, np.int64)
        caused = np.array(rows.causes, np.int64).reshape(-1, 3)
        inside = caused[caused[:, 1] != OUTSIDE]
        source[inside[:, 0]], cause[inside[:, 0]] = inside[:, 1], inside[:, 2]
        outside = tuple((row, of) for row, where, of in caused.tolist() if where == OUTSIDE)
        columns = run, table[1].astype(np.int64) + lowest, table[2].copy(), table[3].copy()
        self.passages.append(Passage(*columns, source, cause))
        return Voice(len(self.passages) - 1, len(run), tuple(rows.tasks), outside)

    def _with_ends(self, number: int, ends: tuple[float, ...]) -> int:
        """The number of a run whose spans, because they share, end as given; each but the first starts where the one
        before ends."""
        key = number, ends
        if key not in self._literal:
            run, starts = self.runs[number], (0.0, *ends[:-1])
            alone = tuple(end - start for start, end in zip(run.starts, run.ends, strict=True))
            self._literal[key] = len(self.runs)
            self.runs.append(Run(run.labels, starts, starts, ends, alone))
        return self._literal[key]


def _taken(taps: Sequence[Tap]) -> list[Deed]:
    """All notes of *taps* in the order of time; they forget them."""
    notes = sorted((note for tap in taps for note in tap.notes), key=lambda note: note.after)
    for tap in taps:
        tap.notes.clear()
    return notes
