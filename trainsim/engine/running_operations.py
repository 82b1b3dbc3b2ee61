"""
The operations of compiled templates. They are shared by all tasks of a chain: what changes is kept in the chain.

A row is written when its run ends, but for messages: theirs is written when they start, and in that order.
"""

from __future__ import annotations

from typing import Any

from trainsim.contracts.instructions import Meet
from trainsim.engine.chain import Cause, Chain
from trainsim.engine.clock import Clock, Event, Timeout
from trainsim.engine.flags import Flags
from trainsim.engine.fluid import Activity, Phases, SharedResources
from trainsim.engine.relative import Facts, Move, Reach, View
from trainsim.errors import InvalidProgram


class Unshared:
    """A run that shares nothing: a plain timeout."""

    __slots__ = ("clock", "run", "seconds")

    def __init__(self, clock: Clock, run: int, seconds: float):
        self.clock, self.run, self.seconds = clock, run, seconds

    def begin(self, chain: Chain, microbatch: int) -> Event:
        chain.posted = self.clock.now
        return Timeout(self.clock, self.seconds)

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        if chain.cause is None:  # what ``record`` does, without the call: this is the path that most kernels take
            chain.add((self.run, microbatch, chain.posted, chain.posted))
        else:
            chain.record(self.run, microbatch, chain.posted, chain.posted)

    def reach(self) -> Reach:
        return Reach()

    def relative(self, chain: Chain, view: View) -> Facts:
        return view.time(chain.posted), view.cause(chain.cause)

    def moved(self, chain: Chain, by: Move) -> None:
        """The chain keeps nothing else."""


class Shared:
    """A run on resources that others may use too."""

    __slots__ = ("phases", "run", "shared")

    def __init__(self, shared: SharedResources, run: int, phases: Phases):
        self.shared, self.run, self.phases = shared, run, phases

    def begin(self, chain: Chain, microbatch: int) -> Event:
        chain.posted = self.shared.clock.now
        chain.pending = self.shared.start(self.phases, Event(self.shared.clock))
        done: Event = chain.pending.done
        return done

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        marks = chain.pending.marks
        if marks is not None:
            chain.rows.mark(len(chain.rows), marks)
        chain.record(self.run, microbatch, chain.posted, chain.posted)

    def reach(self) -> Reach:
        return Reach(resources=self.phases.resources)

    def relative(self, chain: Chain, view: View) -> Facts:
        return view.time(chain.posted), view.cause(chain.cause), view.number(chain.pending)

    def moved(self, chain: Chain, by: Move) -> None:
        """The activity moves by itself."""


class Meeting:
    """One turn of a group class: it starts when nobody is missing."""

    __slots__ = ("activity", "cause", "missing", "over", "phases", "rank_class", "start")

    def __init__(self, posters: int, phases: Phases, over: Event, rank_class: int):
        self.missing, self.phases, self.over, self.rank_class = posters, phases, over, rank_class
        self.start = 0.0
        self.cause: Cause | None = None
        self.activity: Activity | None = None

    def relative(self, view: View) -> Facts:
        """Who waits in it; since when it runs and why, once it does."""
        running = None if self.missing else (view.time(self.start), view.cause(self.cause))
        activity = None if self.activity is None else view.number(self.activity)
        return self.missing, self.phases, view.event(self.over), running, activity

    def moved(self, by: Move) -> None:
        self.start += by.seconds
        self.cause = by.cause(self.cause)


class Post:
    """A collective with members of other classes. ``turn`` counts what this class posted to the communicator."""

    __slots__ = ("group", "meet", "meetings", "phases", "posters", "run", "shared", "turn")

    def __init__(self, shared: SharedResources, run: int, phases: Phases, *, meet: Meet, group: int, posters: int,
                 turn: list[int], meetings: dict[int, Meeting]):  # fmt: skip
        self.shared, self.run, self.phases = shared, run, phases
        self.meet, self.group, self.posters = meet, group, posters
        self.turn, self.meetings = turn, meetings

    def begin(self, chain: Chain, microbatch: int) -> Event:
        turn = self.turn[0]
        self.turn[0] += 1
        meeting = self.meetings.get(turn)
        if meeting is None:
            over = Event(self.shared.clock)
            meeting = self.meetings[turn] = Meeting(self.posters, self.phases, over, chain.rank_class)
        elif meeting.phases is not self.phases:
            raise InvalidProgram(
                f"members of communicator {str(self.meet.communicator)!r} post different things at turn "
                f"{turn + self.turn[1]}: one of them {self.meet.name!r} of microbatch {microbatch} in chain "
                f"{chain.name!r}; all of a group need the same operation and bytes"
            )
        chain.posted, chain.pending = self.shared.clock.now, meeting
        meeting.missing -= 1
        if meeting.missing:
            chain.waits = self, microbatch
        else:
            del self.meetings[turn]
            meeting.start, meeting.cause = chain.posted, chain.because()
            if self.phases.resources:
                meeting.activity = self.shared.start(self.phases, meeting.over)
            else:
                self.shared.clock.fire(meeting.over, self.phases.total)
        return meeting.over

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        meeting: Meeting = chain.pending
        if meeting.activity is not None and meeting.activity.marks is not None:
            chain.rows.mark(len(chain.rows), meeting.activity.marks)
        if chain.posted < meeting.start:
            chain.cause = meeting.cause
        chain.record(self.run, microbatch, chain.posted, meeting.start)

    def reach(self) -> Reach:
        return Reach(resources=self.phases.resources, groups=(self.group,))

    def relative(self, chain: Chain, view: View) -> Facts:
        return view.time(chain.posted), view.cause(chain.cause), view.number(chain.pending)

    def moved(self, chain: Chain, by: Move) -> None:
        """The meeting moves by itself; turns need not: all who post to a group go equally far."""


class Await:
    """Go on when the event has been set; what lies in the past costs nothing."""

    __slots__ = ("clock", "event", "flags", "microbatch")

    def __init__(self, clock: Clock, event: str, flags: Flags, microbatch: int | None):
        self.clock, self.event, self.flags, self.microbatch = clock, event, flags, microbatch

    def begin(self, chain: Chain, microbatch: int) -> Event | None:
        at = microbatch if self.microbatch is None else self.microbatch
        if self.flags.known[at]:
            return None
        chain.waits = self, at
        return self.flags.wait(at, Event(self.clock))

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        chain.cause = value

    def reach(self) -> Reach:
        return Reach(flags=(self.flags,), named=self.microbatch is not None)

    def relative(self, chain: Chain, view: View) -> Facts:
        assert chain.waits is not None
        return (view.event(self.flags.waiting[chain.waits[1]]),)

    def moved(self, chain: Chain, by: Move) -> None:
        assert chain.waits is not None
        by.wait(self.flags, chain.waits[1])


class Set:
    """Set an event of this rank."""

    __slots__ = ("event", "flags", "microbatch")

    def __init__(self, event: str, flags: Flags, microbatch: int | None):
        self.event, self.flags, self.microbatch = event, flags, microbatch

    def begin(self, chain: Chain, microbatch: int) -> None:
        self.flags.set(microbatch if self.microbatch is None else self.microbatch, chain.because())

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        raise AssertionError("a signal waits for nobody")

    def reach(self) -> Reach:
        return Reach(flags=(self.flags,), named=self.microbatch is not None)

    def relative(self, chain: Chain, view: View) -> Facts:
        raise AssertionError("a signal waits for nobody")

    def moved(self, chain: Chain, by: Move) -> None:
        raise AssertionError("a signal waits for nobody")


class Message:
    """A message under way; ``row`` is its own, in the lane ``lane``."""

    __slots__ = ("activity", "flags", "lane", "microbatch", "row")

    def __init__(self, lane: Chain, flags: Flags, microbatch: int):
        self.lane, self.flags, self.microbatch, self.row = lane, flags, microbatch, len(lane.rows)
        self.activity: Activity | None = None

    def arrive(self, _: Event) -> None:
        if self.activity is not None and self.activity.marks is not None:
            self.lane.rows.mark(self.row, self.activity.marks)
        self.flags.set(self.microbatch, (self.lane.number, self.row))

    @property
    def rank_class(self) -> int:
        return self.lane.rank_class

    def relative(self, view: View) -> Facts:
        """Where it goes, and as which row."""
        activity = None if self.activity is None else view.number(self.activity)
        return view.cause((self.lane.number, self.row)), view.flag(self.flags, self.microbatch), activity

    def moved(self, by: Move) -> None:
        self.row += by.rows[self.lane.number]
        self.microbatch += by.microbatches


class Sending:
    """Start a message to a passive receiver; the sender goes on at once, unless it is blocking.

    ``lane`` keeps the rows of the sender's messages of this communicator; ``flags`` are the receiver's.
    """

    __slots__ = ("blocking", "flags", "lane", "phases", "run", "shared")

    def __init__(self, shared: SharedResources, run: int, phases: Phases, *, lane: Chain, flags: Flags, blocking: bool):
        self.shared, self.run, self.phases = shared, run, phases
        self.lane, self.flags, self.blocking = lane, flags, blocking

    def begin(self, chain: Chain, microbatch: int) -> Event | None:
        lane, clock = self.lane, self.shared.clock
        message = Message(lane, self.flags, microbatch)
        chain.pending = lane.number, message.row
        lane.cause = chain.because()
        lane.record(self.run, microbatch, clock.now, clock.now)
        if self.phases.resources:
            done = Event(clock)
            done.callbacks.append(message.arrive)
            message.activity = self.shared.start(self.phases, done)
        else:
            done = Timeout(clock, self.phases.total)
            done.callbacks.append(message.arrive)
        return done if self.blocking else None

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        chain.cause = chain.pending

    def reach(self) -> Reach:
        return Reach(resources=self.phases.resources, flags=(self.flags,))

    def relative(self, chain: Chain, view: View) -> Facts:
        return (view.cause(chain.pending),)

    def moved(self, chain: Chain, by: Move) -> None:
        chain.pending = by.cause(chain.pending)
