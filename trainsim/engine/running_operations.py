"""
The operations of compiled templates. They are shared by all tasks of a chain: what changes is kept in the chain.

A row is written when its run ends, but for messages: theirs is written when they start, and in that order.
"""

from __future__ import annotations

from typing import Any

from trainsim.contracts.instructions import Meet
from trainsim.engine.chain import Cause, Chain
from trainsim.engine.clock import Clock, Event, Timeout
from trainsim.engine.fluid import Activity, Phases, SharedResources
from trainsim.errors import InvalidProgram

Flags = list[Any]
"""State of one event of a rank by microbatch: None, True once it is set, or the Event that somebody waits for."""


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
            chain.rows.marks[len(chain.rows)] = marks
        chain.record(self.run, microbatch, chain.posted, chain.posted)


class Meeting:
    """One turn of a group class: it starts when nobody is missing."""

    __slots__ = ("activity", "cause", "missing", "over", "phases", "start")

    def __init__(self, posters: int, phases: Phases, over: Event):
        self.missing, self.phases, self.over = posters, phases, over
        self.start = 0.0
        self.cause: Cause | None = None
        self.activity: Activity | None = None


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
            meeting = self.meetings[turn] = Meeting(self.posters, self.phases, Event(self.shared.clock))
        elif meeting.phases is not self.phases:
            raise InvalidProgram(
                f"members of communicator {str(self.meet.communicator)!r} post different things at turn {turn}: one of "
                f"them {self.meet.name!r} of microbatch {microbatch} in chain {chain.name!r}; all of a group need the "
                f"same operation and bytes"
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
            chain.rows.marks[len(chain.rows)] = meeting.activity.marks
        if chain.posted < meeting.start:
            chain.cause = meeting.cause
        chain.record(self.run, microbatch, chain.posted, meeting.start)


class Await:
    """Go on when the event has been set; what lies in the past costs nothing."""

    __slots__ = ("clock", "event", "flags", "microbatch")

    def __init__(self, clock: Clock, event: str, flags: Flags, microbatch: int | None):
        self.clock, self.event, self.flags, self.microbatch = clock, event, flags, microbatch

    def begin(self, chain: Chain, microbatch: int) -> Event | None:
        at = microbatch if self.microbatch is None else self.microbatch
        state = self.flags[at]
        if state is True:
            return None
        if state is None:
            state = self.flags[at] = Event(self.clock)
        chain.waits = self, at
        event: Event = state
        return event

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        chain.cause = value


class Set:
    """Set an event of this rank."""

    __slots__ = ("flags", "microbatch")

    def __init__(self, flags: Flags, microbatch: int | None):
        self.flags, self.microbatch = flags, microbatch

    def begin(self, chain: Chain, microbatch: int) -> None:
        set_flag(self.flags, microbatch if self.microbatch is None else self.microbatch, chain.because())

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        raise AssertionError("a signal waits for nobody")


def set_flag(flags: Flags, microbatch: int, cause: Cause | None) -> None:
    """Set an event; who waits for it learns why it goes on."""
    state, flags[microbatch] = flags[microbatch], True
    if isinstance(state, Event):
        state.succeed(cause)


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
        row = lane.number, len(lane.rows)
        lane.cause = chain.because()
        lane.record(self.run, microbatch, clock.now, clock.now)
        activity: Activity | None = None

        def arrive(_: Event) -> None:
            if activity is not None and activity.marks is not None:
                lane.rows.marks[row[1]] = activity.marks
            set_flag(self.flags, microbatch, row)

        if self.phases.resources:
            done = Event(clock)
            done.callbacks.append(arrive)
            activity = self.shared.start(self.phases, done)
        else:
            done = Timeout(clock, self.phases.total)
            done.callbacks.append(arrive)
        chain.pending = row
        return done if self.blocking else None

    def end(self, chain: Chain, microbatch: int, value: Any) -> None:
        chain.cause = chain.pending
