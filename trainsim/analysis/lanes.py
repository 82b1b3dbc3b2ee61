"""The folded trace as numpy columns: one row per run of spans, plus sums per run; made once and shared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain as chained

import numpy as np
import numpy.typing as npt

from trainsim.analysis.kinds import BUSY, COLUMN, PASSES
from trainsim.contracts.exact import TICK
from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import KINDS, Program
from trainsim.contracts.trace import Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lane:
    """The rows of one chain of one class. ``seconds`` (rows x KINDS) is time in spans, ``held`` time waited
    for late peers inside the row; ``task`` is the number of the task that a row belongs to, ``in_pass`` and
    ``busy`` whether that is a pass, or a pass or an early update;
    ``messages`` is what the chain carries, if it carries messages."""

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
    programs: tuple[Program, ...]
    program_of: Ints

    @cached_property
    def ranks(self) -> int:
        return len(self.trace.rank_class)

    @cached_property
    def count(self) -> Ints:
        """Ranks of each class."""
        return np.bincount(self.trace.rank_class, minlength=self.trace.classes)

    @cached_property
    def program(self) -> tuple[Program, ...]:
        """The program of each class."""
        return tuple(self.programs[int(self.program_of[int(r)])] for r in self.trace.representative)

    @cached_property
    def stage(self) -> Ints:
        """The pipeline stage of each class."""
        return np.array([p.stage for p in self.program], np.int64)

    @cached_property
    def stages(self) -> int:
        return int(self.stage.max()) + 1 if len(self.stage) else 0

    @cached_property
    def duration(self) -> float:
        """Seconds from the start until the last rank has done everything, of all steps."""
        return max((float(lane.end.max()) for lane in self.all if len(lane)), default=0.0)

    @cached_property
    def steps(self) -> int:
        """How many steps were run back to back: each ends with an update."""
        return max(1, sum(len(updates) for updates in self.updates[:1]))

    @cached_property
    def step(self) -> float:
        """Seconds of one step: the duration over the number of steps, in whole ticks."""
        tick = TICK if self.duration < 4096 else TICK * 16
        return self.duration if self.steps == 1 else float(self.duration / self.steps // tick * tick)

    @cached_property
    def updates(self) -> tuple[Ints, ...]:
        """Of each class the numbers of the tasks in its compute chain that end a step."""
        chains = [self.trace.tasks[lane.number] for lane in self.compute]
        return tuple(np.flatnonzero([task.template.work == "update" for task in chain]) for chain in chains)

    @cached_property
    def all(self) -> tuple[Lane, ...]:
        return tuple(self._lane(k) for k in range(len(self.trace.chains)))

    @cached_property
    def compute(self) -> tuple[Lane, ...]:
        """The chain that does the work, of each class."""
        return tuple(self.all[self.trace.number[c, "compute"]] for c in range(self.trace.classes))

    @cached_property
    def others(self) -> tuple[tuple[Lane, ...], ...]:
        """The other chains of each class, messages excepted."""
        out: list[list[Lane]] = [[] for _ in range(self.trace.classes)]
        for lane in self.all:
            if lane.name != "compute" and not lane.is_messages:
                out[lane.owner].append(lane)
        return tuple(map(tuple, out))

    @cached_property
    def messages(self) -> tuple[Lane, ...]:
        return tuple(lane for lane in self.all if lane.is_messages)

    def gap_cause(self, lane: Lane) -> Ints:
        """The row that ended the idle time before each row of *lane*, or -1.

        A row's ``cause`` says what let it start. Where that was a late peer of a collective, the idle time before it
        was posted ended with a row of another chain of this rank, at that very instant.
        """
        late = lane.start > lane.posted
        cause = np.where(late, -1, lane.cause)
        for other in self.others[lane.owner]:
            at = np.minimum(np.searchsorted(other.end, lane.posted), len(other) - 1)
            found = late & (other.end[at] == lane.posted) if len(other) else np.zeros(len(lane), bool)
            cause[found] = self.offset[other.number] + at[found]
        return cause

    # every row of every lane, one after the other: what ``cause`` points to

    @cached_property
    def offset(self) -> Ints:
        """Where the rows of each chain begin in the concatenation."""
        sizes = [len(rows) for rows in self.trace.rows]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def chain_of(self) -> Ints:
        """The chain of each row of the concatenation."""
        return np.repeat(np.arange(len(self.all)), np.diff(self.offset))

    @cached_property
    def row_start(self) -> Floats:
        return np.concatenate([lane.start for lane in self.all])

    @cached_property
    def row_end(self) -> Floats:
        return np.concatenate([lane.end for lane in self.all])

    @cached_property
    def row_last(self) -> Ints:
        """The kind of the last span of each row."""
        return np.concatenate([lane.last for lane in self.all])

    @cached_property
    def _runs(self) -> tuple[Ints, Ints, Ints, Floats, Floats, Floats]:
        """Per run: spans, first position; per span: kind; per run: seconds in spans, held (x KINDS),
        length."""
        runs = self.trace.runs
        size = np.fromiter((len(r.labels) for r in runs), np.int64, len(runs))
        spans = int(size.sum())
        kind = np.fromiter((COLUMN[label.kind] for r in runs for label in r.labels), np.int64, spans)
        posted, start, end = (
            np.fromiter(chained.from_iterable(columns), np.float64, spans)
            for columns in ((r.posted for r in runs), (r.starts for r in runs), (r.ends for r in runs))
        )
        first = np.cumsum(size) - size
        owner = np.repeat(np.arange(len(runs)), size)
        wait = start - posted
        wait[first[size > 0]] = 0.0  # the row itself says when its first span was posted
        length = np.zeros(len(runs))
        length[size > 0] = end[(first + size - 1)[size > 0]]
        return (
            size,
            first,
            kind,
            _table(owner, kind, end - start, len(runs)),
            _table(owner, kind, wait, len(runs)),
            length,
        )

    def _lane(self, k: int) -> Lane:
        rows, (owner, name) = self.trace.rows[k], self.trace.chains[k]
        table = np.frombuffer(rows.table, np.float64).reshape(-1, 4) if len(rows) else np.zeros((0, 4))
        run, start = table[:, 0].astype(np.int64), table[:, 3]
        size, first, kind, seconds, held, length = self._runs
        lane_seconds, lane_held, end = seconds[run], held[run], start + length[run]
        self._correct(k, run, lane_seconds, lane_held, end)
        task = np.searchsorted(np.array(rows.tasks, np.int64), np.arange(len(run)), side="right")
        cause = np.full(len(run), -1, np.int64)
        if rows.causes:
            of = np.array([(at, self.offset[chain] + row) for at, (chain, row) in rows.causes.items()], np.int64)
            cause[of[:, 0]] = of[:, 1]
        works = [t.template.work for t in self.trace.tasks[k]] + [""]
        mine = np.minimum(task, len(works) - 1)
        return Lane(
            number=k, owner=owner, name=name, run=run, posted=table[:, 2], start=start, end=end,
            first=kind[first[run]], last=kind[first[run] + size[run] - 1], seconds=lane_seconds, held=lane_held,
            task=task, cause=cause, in_pass=np.array([work in PASSES for work in works])[mine],
            busy=np.array([work in BUSY for work in works])[mine],
            messages=self.trace.messages.get(name),
        )  # fmt: skip

    def _correct(self, k: int, run: Ints, seconds: Floats, held: Floats, end: Floats) -> None:
        """Rows that had to share a resource have the true ends of their spans as marks; spans follow one
        another."""
        marks = self.trace.rows[k].marks
        if not marks:
            return
        at = np.fromiter(marks, np.int64, len(marks))
        size, first, kind = self._runs[:3]
        spans = size[run[at]]
        stops = np.fromiter(chained.from_iterable(marks.values()), np.float64, int(spans.sum()))
        heads = np.cumsum(spans) - spans
        starts = np.concatenate([[0.0], stops[:-1]])
        starts[heads] = self.trace_start(k)[at]
        owner = np.repeat(np.arange(len(at)), spans)
        flat = np.arange(len(stops)) + np.repeat(first[run[at]] - heads, spans)
        seconds[at], held[at] = _table(owner, kind[flat], stops - starts, len(at)), 0.0
        end[at] = stops[heads + spans - 1]

    def trace_start(self, k: int) -> Floats:
        """When each row of chain *k* started."""
        return np.frombuffer(self.trace.rows[k].table, np.float64).reshape(-1, 4)[:, 3]


def _table(row: Ints, column: Ints, weight: Floats, rows: int) -> Floats:
    """Sums of *weight* in a table of *rows* x KINDS."""
    width = len(KINDS)
    sums: Floats = np.bincount(row * width + column, weight, rows * width).astype(np.float64)
    return sums.reshape(rows, width)
