"""The folded trace as numpy columns: one row per run of spans, with sums per kind; made once and shared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.analysis.kinds import BUSY, COLUMN, PASSES, ROLLOUT, UPDATE
from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import KINDS
from trainsim.contracts.record import COMPUTE
from trainsim.contracts.trace import Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """The rows of one chain of one class. ``seconds`` (rows x KINDS) is time in spans, ``held`` time waited
    for late peers inside the row; ``first`` and ``last`` are the kinds of its first and last span; ``task`` is the
    number of the task that a row belongs to, ``in_pass`` and ``busy`` whether that is a pass, or a pass or an early
    update, ``generates`` whether it is a part of a rollout. ``literal``: the row shared a resource. ``messages`` is
    what the chain carries, if it carries messages."""

    number: int
    owner: int
    name: str
    posted: Floats
    start: Floats
    end: Floats
    first: Ints
    last: Ints
    run: Ints
    seconds: Floats
    held: Floats
    task: Ints
    cause: Ints
    in_pass: Bools
    busy: Bools
    generates: Bools
    literal: Bools
    messages: Messages | None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_messages(self) -> bool:
        return self.messages is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class Lanes:
    """All lanes of a trace. ``cause`` of a lane's row is a row of the concatenation of all lanes, or -1."""

    trace: Trace

    @property
    def ranks(self) -> int:
        return self.trace.ranks

    @cached_property
    def count(self) -> Ints:
        """Ranks of each class."""
        return np.bincount(self.trace.rank_class, minlength=self.trace.classes)

    @property
    def stage(self) -> Ints:
        """The pipeline stage of each class."""
        return self.trace.stage

    @cached_property
    def stages(self) -> int:
        return int(self.stage.max()) + 1 if len(self.stage) else 0

    @property
    def duration(self) -> float:
        """Seconds from the start until the last rank has done everything, of all steps."""
        return self.trace.duration

    @cached_property
    def steps(self) -> int:
        """How many steps were run back to back: each ends with an update."""
        return max(1, sum(len(updates) for updates in self.updates[:1]))

    @cached_property
    def step(self) -> float:
        """Seconds of one step: the duration over the number of steps, in whole ticks."""
        tick = self.trace.tick
        return self.duration if self.steps == 1 else float(self.duration / self.steps // tick * tick)

    @cached_property
    def updates(self) -> tuple[Ints, ...]:
        """Of each class the numbers of the tasks in its compute chain that end a step."""
        ends = np.array([facts.work == UPDATE for facts in self.trace.facts], bool)
        chains = (self.trace.number[c, COMPUTE] for c in range(self.trace.classes))
        return tuple(np.flatnonzero(ends[self.trace.tasks[k].facts]) for k in chains)

    @cached_property
    def all(self) -> tuple[Lane, ...]:
        every, (seconds, held), flags = self.trace.every_row, self._seconds, self._flags
        columns: list[Any] = [every.posted, every.start, every.end, self.row_first, self.row_last, every.run]
        columns += [seconds, held, every.task, every.cause, *flags, every.literal]
        ends = self.offset.tolist()
        lanes = []
        for k, (owner, name) in enumerate(self.trace.chains):
            own: list[Any] = [column[ends[k] : ends[k + 1]] for column in columns]
            own.append(self.trace.messages.get(name))
            lanes.append(Lane(k, owner, name, *own))
        return tuple(lanes)

    @cached_property
    def compute(self) -> tuple[Lane, ...]:
        """The chain that does the work, of each class."""
        return tuple(self.all[self.trace.number[c, COMPUTE]] for c in range(self.trace.classes))

    def updating(self, lane: Lane) -> Bools:
        """Which rows of the compute chain of a class belong to the updates that end its steps."""
        ends = np.zeros(len(self.trace.tasks[lane.number].facts) + 1, bool)  # rows behind the last task belong to none
        ends[self.updates[lane.owner]] = True
        return ends[lane.task]

    @cached_property
    def others(self) -> tuple[tuple[Lane, ...], ...]:
        """The other chains of each class, messages excepted."""
        out: list[list[Lane]] = [[] for _ in range(self.trace.classes)]
        for lane in self.all:
            if lane.name != COMPUTE and not lane.is_messages:
                out[lane.owner].append(lane)
        return tuple(map(tuple, out))

    @cached_property
    def messages(self) -> tuple[Lane, ...]:
        return tuple(lane for lane in self.all if lane.is_messages)

    def works(self, lane: Lane) -> tuple[str, ...]:
        """What each task of a lane does."""
        names = [fact.work for fact in self.trace.facts]
        return tuple(map(names.__getitem__, self.trace.tasks[lane.number].facts.tolist()))

    def gap_cause(self, lane: Lane) -> Ints:
        """The row that ended the idle time before each row of *lane*, or -1.

        A row's ``cause`` says what let it start. Where that was a late peer of a collective, the idle time before it
        was posted ended with a row of another chain of this rank, at that very instant.
        """
        late = lane.start > lane.posted
        cause = np.where(late, -1, lane.cause)
        for other in self.others[lane.owner]:
            at = np.minimum(np.searchsorted(other.end, lane.posted), len(other) - 1)
            ended = late & (other.end[at] == lane.posted) if len(other) else np.zeros(len(lane), bool)
            cause[ended] = self.offset[other.number] + at[ended]
        return cause

    # every row of every lane, one after the other: what ``cause`` points to

    @property
    def offset(self) -> Ints:
        """Where the rows of each chain begin in the concatenation."""
        return self.trace.offset

    @cached_property
    def chain_of(self) -> Ints:
        """The chain of each row of the concatenation."""
        return np.repeat(np.arange(len(self.all)), np.diff(self.offset))

    @cached_property
    def chain_owner(self) -> Ints:
        """The class of each chain."""
        return np.array([lane.owner for lane in self.all], np.int64)

    @property
    def row_start(self) -> Floats:
        return self.trace.every_row.start

    @property
    def row_end(self) -> Floats:
        return self.trace.every_row.end

    @cached_property
    def row_first(self) -> Ints:
        """The kind of the first span of each row."""
        return self.run_sums.first[self.trace.every_row.run]

    @cached_property
    def row_last(self) -> Ints:
        """The kind of the last span of each row."""
        return self.run_sums.last[self.trace.every_row.run]

    @cached_property
    def run_sums(self) -> RunSums:
        """Sums over the spans of each run."""
        flat, runs = self.trace.run_spans, len(self.trace.runs)
        kind, owner = self.label_kind[flat.label], np.repeat(np.arange(runs), flat.size)
        wait = flat.start - flat.posted
        wait[flat.first[flat.size > 0]] = 0.0  # the row itself says when its first span was posted
        return RunSums(
            first=kind[flat.first],
            last=kind[flat.first + flat.size - 1],
            seconds=_table(owner, kind, flat.end - flat.start, runs),
            alone=_table(owner, kind, flat.alone, runs),
            held=_table(owner, kind, wait, runs),
        )

    @cached_property
    def _seconds(self) -> tuple[Floats, Floats]:
        """Of each row the seconds in spans and those waited for late peers inside."""
        rows, sums = self.trace.every_row, self.run_sums
        seconds, held = sums.seconds[rows.run], sums.held[rows.run]
        own = np.flatnonzero(rows.literal | (rows.scale != 1.0))  # rows whose spans are not those of their run
        if len(own):
            spans = self.trace.every_span(own)
            kind = self.label_kind[spans.label]
            # The first span of a row waits as the row says; only waits inside are held.
            wait = np.where(np.diff(spans.row, prepend=-1) == 0, spans.start - spans.posted, 0.0)
            row = np.searchsorted(own, spans.row)  # the place among *own* of the row that each span is in
            seconds[own] = _table(row, kind, spans.end - spans.start, len(own))
            held[own] = _table(row, kind, wait, len(own))
        return seconds, held

    @cached_property
    def _flags(self) -> tuple[Bools, Bools, Bools]:
        """Whether each row is of a pass, of a pass or an early update, of a rollout."""
        works = [fact.work for fact in self.trace.facts] + [""]  # rows behind the last task belong to none
        last = np.full(1, -1, np.int64)
        facts = np.concatenate([part for tasks in self.trace.tasks for part in (tasks.facts, last)])
        size = np.array([len(tasks.facts) for tasks in self.trace.tasks], np.int64)
        rows = np.diff(self.offset)
        first = np.cumsum(size + 1) - (size + 1)
        fact = facts[np.repeat(first, rows) + np.minimum(self.trace.every_row.task, np.repeat(size, rows))]
        in_pass, busy, generates = (
            np.array([work in some for work in works])[fact] for some in (PASSES, BUSY, ROLLOUT)
        )
        return in_pass, busy, generates

    @cached_property
    def label_kind(self) -> Ints:
        """The column of each label's kind."""
        return np.array([COLUMN[label.kind] for label in self.trace.labels], np.int64)


class RunSums(NamedTuple):
    """Of each run: the kinds of its first and last span, seconds in spans, those that they take alone, and seconds
    waited inside (runs x KINDS)."""

    first: Ints
    last: Ints
    seconds: Floats
    alone: Floats
    held: Floats


def _table(row: Ints, column: Ints, weight: Floats, rows: int) -> Floats:
    """Sums of *weight* in a table of *rows* x KINDS."""
    width = len(KINDS)  # (row, column) as one number, so that one pass sums all cells
    sums: Floats = np.bincount(row * width + column, weight, rows * width).astype(np.float64)
    return sums.reshape(rows, width)
