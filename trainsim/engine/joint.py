"""
Joint runs: what several classes of one group go through in step meets once and is contracted.

A straggler splits tensor-parallel groups into classes, and every collective of such a group becomes a meeting. But
as long as nobody outside can make any member early or late, the whole run up to the next named wait follows from who
comes last to its first meeting: ``start = max(arrivals)``, then ``+ meeting + max over members of the gap`` (max-plus).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainsim.contracts.instructions import Meet
from trainsim.contracts.record import Label, Run
from trainsim.engine.chain import Cause, Chain
from trainsim.engine.clock import Clock, Event
from trainsim.engine.relative import Facts, Move, Reach, View
from trainsim.errors import InvalidProgram


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """One class's part of a joint run, from its first meeting on; seconds.

    ``gaps[k]`` are the kernels after meeting k; the last gap is the tail. ``labels`` are those of all spans in order.
    """

    labels: tuple[Label, ...]
    gaps: tuple[tuple[float, ...], ...]
    meets: tuple[float, ...]


@dataclass(slots=True, eq=False)
class Member:
    """A class that came to a joint run: when it is at the first meeting, and what made it come then.

    Once nobody is missing it knows when all of them start, its ``run`` from there on, and why it started then.
    """

    rank_class: int
    arrival: float
    body: Body
    done: Event
    cause: Cause | None
    company: list[Member]
    start: float = 0.0
    run: int = -1

    def relative(self, view: View) -> Facts:
        """When it came, and who else is there; when they start and with which run, once nobody is missing."""
        start = tuple(map(view.number, self.company)) if self.run < 0 else view.time(self.start)
        return view.time(self.arrival), self.body, view.event(self.done), view.cause(self.cause), start, self.run

    def moved(self, by: Move) -> None:
        self.arrival += by.seconds
        self.start += by.seconds
        self.cause = by.cause(self.cause)


class Joints:
    """The joint runs of all group classes. ``runs`` are those of the trace."""

    def __init__(self, clock: Clock, groups: int, runs: list[Run]):
        self.clock, self.runs = clock, runs
        self.waiting: list[dict[int, list[Member]]] = [{} for _ in range(groups)]
        self._plans: dict[frozenset[Body], dict[Body, tuple[int, float]]] = {}

    def release(self, members: list[Member]) -> None:
        """The last member is here: from now on the whole run is known."""
        last = max(members, key=lambda member: member.arrival)
        bodies = list(dict.fromkeys(member.body for member in members))
        plan = self._plans.get(key := frozenset(bodies))
        if plan is None:
            plan = self._plans[key] = self._plan(bodies)
        start, cause = last.arrival, last.cause
        for member in members:
            member.start, member.cause = start, cause
            member.run, seconds = plan[member.body]
            self.clock.fire(member.done, start + seconds - self.clock.now, member)

    def _plan(self, bodies: list[Body]) -> dict[Body, tuple[int, float]]:
        """Who is slowest in each gap sets the pace of all: (number of the run, its seconds) of each body."""
        if len({body.meets for body in bodies}) > 1:
            names = sorted({body.labels[0].name for body in bodies})
            raise InvalidProgram(f"members of one group post different things at {' and '.join(names)}")
        starts, at = [], 0.0
        for k, seconds in enumerate(bodies[0].meets):
            starts.append(at)
            at += seconds + max(sum(body.gaps[k]) for body in bodies)
        out = {}
        for body in bodies:
            run = _member_run(body, starts)
            out[body] = len(self.runs), run.ends[-1]
            self.runs.append(run)
        return out


def _member_run(body: Body, starts: list[float]) -> Run:
    """The spans of one member, given when each meeting starts."""
    posted, begin, end, now = [], [], [], 0.0
    for start, seconds, gap in zip(starts, body.meets, body.gaps, strict=True):
        posted.append(now)
        begin.append(start)
        end.append(now := start + seconds)
        for kernel in gap:
            posted.append(now)
            begin.append(now)
            end.append(now := now + kernel)
    return Run(body.labels, tuple(posted), tuple(begin), tuple(end))


class Joint:
    """Go through a joint run: ``head`` seconds alone (row ``run``, if there is a head), then together."""

    __slots__ = ("body", "group", "head", "joints", "meet", "meets", "posters", "run", "turn")

    def __init__(self, joints: Joints, body: Body, *, run: int, head: float, meet: Meet, group: int, posters: int,
                 turn: list[int]):  # fmt: skip
        self.joints, self.body, self.meets = joints, body, len(body.meets)
        self.run, self.head = run, head
        self.meet, self.group, self.posters, self.turn = meet, group, posters, turn

    def begin(self, chain: Chain, microbatch: int) -> Event:
        turn = self.turn[0]
        self.turn[0] += self.meets
        chain.posted = self.joints.clock.now
        done = Event(self.joints.clock)
        cause = (chain.number, len(chain.rows)) if self.run >= 0 else chain.because()
        waiting = self.joints.waiting[self.group]
        members = waiting.setdefault(turn, [])
        chain.pending = Member(chain.rank_class, chain.posted + self.head, self.body, done, cause, members)
        members.append(chain.pending)
        if len(members) == self.posters:
            del waiting[turn]
            self.joints.release(members)
        else:
            chain.waits = self, microbatch
        return done

    def end(self, chain: Chain, microbatch: int, value: Member) -> None:
        if self.run >= 0:
            chain.record(self.run, microbatch, chain.posted, chain.posted)
        if value.arrival < value.start:
            chain.cause = value.cause
        chain.record(value.run, microbatch, value.arrival, value.start)

    def reach(self) -> Reach:
        return Reach(groups=(self.group,))

    def relative(self, chain: Chain, view: View) -> Facts:
        return view.time(chain.posted), view.cause(chain.cause), view.number(chain.pending)

    def moved(self, chain: Chain, by: Move) -> None:
        """The member moves by itself; turns need not: all who post to a group go equally far."""
