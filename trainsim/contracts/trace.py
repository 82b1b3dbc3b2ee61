"""
Contract 2: what happened, folded. It is complete in itself: its tick, what each task was, what ranks hold and send.

One row per run of spans and class of ranks; spans are decoded on demand, and only here. A row is a run (labels at
fixed offsets) times a scale, or literal: then the true end of each span is kept beside it. So measured spans, spans of
jittered kernels and those of a simulation are rows of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain as chains_of
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.exact import TICK
from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Memory
from trainsim.contracts.record import Label, Passage, Record, Run, TaskFacts, Tasks
from trainsim.errors import UnknownName

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_flatten = chains_of.from_iterable


class Rows(NamedTuple):
    """The rows of a chain as columns. ``run`` indexes ``Trace.runs``, ``task`` the tasks of the chain; ``cause`` is the
    row whose end let this one start, counted through all chains, or -1 where that was the row before. ``literal``: its
    spans have ends of their own, for they shared a resource."""

    run: Ints
    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats
    scale: Floats
    task: Ints
    cause: Ints
    literal: Bools


class RunSpans(NamedTuple):
    """All runs behind each other: sizes and first spans by run, the rest by span; ``alone`` is seconds."""

    size: Ints
    first: Ints
    label: Ints
    posted: Floats
    start: Floats
    end: Floats
    alone: Floats


class FlatPassages(NamedTuple):
    """All passages behind each other, as one: ``rows``; sizes and first rows by passage."""

    size: Ints
    first: Ints
    rows: Passage


class Spans(NamedTuple):
    """Spans as equally long columns, in the order of the chain. ``label`` indexes ``Trace.labels``, ``row`` the rows
    of the chain."""

    label: Ints
    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats
    row: Ints


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Trace:
    """The step of every rank: ``rank_class`` says whose rows are a rank's.

    By class: its ``representative`` rank, its pipeline ``stage``, the ``parameters`` that a rank holds between passes,
    and what it keeps in ``memory`` for the whole step. ``chains`` numbers the pairs (class, chain name);
    ``records[k]`` belong to ``chains[k]``, and so do ``tasks[k]``. Messages have rows of their own, without tasks, in
    the order in which they were sent: ``messages`` says what the chains carry that are such rows. Times are multiples
    of ``tick`` seconds.

    ``passages`` are those of the records.
    """

    rank_class: Ints
    representative: Ints
    stage: Ints
    parameters: Floats
    memory: tuple[Memory, ...]
    runs: Sequence[Run]
    chains: tuple[tuple[int, str], ...]
    records: tuple[Record, ...]
    facts: tuple[TaskFacts, ...]
    tasks: tuple[Tasks, ...]
    messages: Mapping[str, Messages] = field(default_factory=dict)
    passages: Sequence[Passage] = ()
    tick: float = TICK
    events: int = 0

    @cached_property
    def number(self) -> dict[tuple[int, str], int]:
        return {chain: k for k, chain in enumerate(self.chains)}

    @property
    def ranks(self) -> int:
        return len(self.rank_class)

    @property
    def classes(self) -> int:
        return len(self.representative)

    @property
    def labels(self) -> tuple[Label, ...]:
        """All labels of the step, each once."""
        return self._numbered[0]

    @cached_property
    def _numbered(self) -> tuple[tuple[Label, ...], dict[int, list[int]]]:
        """All labels, and for the labels of each run, by their id, their numbers: labels are long to compare."""
        number: dict[Label, int] = {}
        shared = {id(run.labels): run.labels for run in self.runs}
        of_runs = {key: [number.setdefault(label, len(number)) for label in labels] for key, labels in shared.items()}
        return tuple(number), of_runs

    @cached_property
    def offset(self) -> Ints:
        """Where the rows of each chain begin if all are counted through; the last is their number."""
        return np.concatenate([[0], np.cumsum([len(record) for record in self.records])]).astype(np.int64)

    def title(self, chain: str) -> str:
        """The name of a chain for readers: that of the messages that it carries, or its own."""
        return str(self.messages.get(chain, chain))

    def chain_names(self, rank: int) -> tuple[str, ...]:
        """The chains of a rank, those of its messages last."""
        return self._names[int(self.rank_class[rank])]

    @cached_property
    def run_spans(self) -> RunSpans:
        """The spans of all runs."""
        _, numbered = self._numbered
        size = np.array([len(run.labels) for run in self.runs], np.int64)
        start, end = (np.array(list(_flatten(run[k] for run in self.runs)), np.float64) for k in (2, 3))
        shared = [run.alone for run in self.runs if run.alone]
        alone = end - start
        if shared:
            alone[np.repeat([bool(run.alone) for run in self.runs], size)] = list(_flatten(shared))
        return RunSpans(
            size=size,
            first=np.cumsum(size) - size,
            label=np.array(list(_flatten(numbered[id(run.labels)] for run in self.runs)), np.int64),
            posted=np.array(list(_flatten(run.posted for run in self.runs)), np.float64),
            start=start,
            end=end,
            alone=alone,
        )

    def rows(self, number: int) -> Rows:
        """The rows of chain *number*."""
        if number not in self._rows:
            self._rows[number] = self._decoded(number)
        return self._rows[number]

    def spans(self, rank: int, chain: str) -> Spans:
        """All spans of one chain of a rank, whether they shared or not."""
        return self.spans_of(self._chain(rank, chain))

    def spans_of(self, number: int, which: Ints | None = None) -> Spans:
        """The spans of chain *number*: all, or those of the rows *which*."""
        rows, flat = self.rows(number), self.run_spans
        row = np.arange(len(rows.run)) if which is None else which
        size = flat.size[rows.run[row]]
        # 0, 1, ... within each row: a running number less the number at which its row begins.
        inside = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        row = np.repeat(row, size)
        return Spans(flat.label[flat.first[rows.run[row]] + inside], rows.microbatch[row],
                     *self._times(number, row, inside), row)  # fmt: skip

    def span_times(self, number: int, spans: Ints) -> tuple[Floats, Floats]:
        """When some *spans* of chain *number*, counted from its first one, were posted and when they ended."""
        # Span n is in the first row whose spans, and those of all rows before it, are more than n.
        ends = np.cumsum(self.run_spans.size[self.rows(number).run])
        row = np.searchsorted(ends, spans, side="right")
        posted, _, end = self._times(number, row, spans - (ends - self.run_spans.size[self.rows(number).run])[row])
        return posted, end

    def task_times(self, number: int) -> tuple[Floats, Floats]:
        """When each task of chain *number* posted its first span, and when its last one ended; a task without spans is
        over when the row before it is."""
        rows, last = self.rows(number), np.array(self.records[number].tasks, np.int64)
        first = np.concatenate([[0], last[:-1]]).astype(np.int64)[: len(last)]
        ended = np.concatenate([[0.0], rows.end])  # one place behind: ended[k] is the end of the row before row k
        return np.where(last > first, np.append(rows.posted, 0.0)[first], ended[first]), ended[last]

    @cached_property
    def duration(self) -> float:
        """When the last span of all ended, in seconds."""
        return max((float(self.rows(k).end.max(initial=0.0)) for k in range(len(self.records))), default=0.0)

    @property
    def row_count(self) -> int:
        """Rows of all chains."""
        return int(self.offset[-1])

    @cached_property
    def operations(self) -> int:
        """Spans of the representatives: what the engine carried out."""
        return sum(int(self.run_spans.size[self.rows(k).run].sum()) for k in range(len(self.records)))

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], ...]:
        names: list[list[str]] = [[] for _ in range(self.classes)]
        for rank_class, name in self.chains:
            names[rank_class].append(name)
        return tuple(map(tuple, names))

    def _chain(self, rank: int, chain: str) -> int:
        if not 0 <= rank < self.ranks:
            raise UnknownName("rank", str(rank), [f"0 to {self.ranks - 1}"])
        number = self.number.get((int(self.rank_class[rank]), chain))
        if number is None:
            raise UnknownName(f"chain of rank {rank}", chain, self.chain_names(rank))
        return number

    @cached_property
    def _rows(self) -> dict[int, Rows]:
        """The rows of chains that were asked for."""
        return {}

    def _decoded(self, number: int) -> Rows:
        record, flat = self.records[number], self.run_spans
        run, microbatch, posted, start, cause = self._table(number)
        scale = np.array(record.scales) if len(record.scales) else np.ones(len(run))
        end = start + self._scaled(flat.end[flat.first[run] + flat.size[run] - 1], scale)
        literal = np.zeros(len(run), bool)
        if record.marked:
            marked, size = self._marked(number)
            literal[marked] = True
            end[marked] = np.frombuffer(record.marks)[np.cumsum(size) - 1]
        if record.causes:
            row, chain, there = np.frombuffer(record.causes, np.int64).reshape(-1, 3).T
            cause[row] = self.offset[chain] + there
        # ``tasks[k]`` rows were there when task k ended: row n belongs to the first task that saw more than n.
        task = np.searchsorted(np.array(record.tasks, np.int64), np.arange(len(run)), side="right")
        return Rows(run, microbatch, posted, start, end, scale, task, cause, literal)

    def _table(self, number: int) -> tuple[Ints, Ints, Floats, Floats, Ints]:
        """(Run, microbatch, posted, start, cause) of all rows of chain *number*, those of its passages written out."""
        record = self.records[number]
        table = np.frombuffer(record.table).reshape(-1, 4).T if len(record.table) else np.zeros((4, 0))
        run, microbatch, posted, start = table[0].astype(np.int64), table[1].astype(np.int64), table[2], table[3]
        if not record.hidden and not (run < 0).any():
            return run, microbatch, posted, start, np.full(len(run), -1, np.int64)
        every, passage = self._passages, np.where(run < 0, -1 - run, 0)
        size = np.where(run < 0, every.size[passage], 1)
        entry = np.repeat(np.arange(len(run)), size)
        inside = np.arange(len(entry)) - np.repeat(np.cumsum(size) - size, size)
        run, microbatch, posted, start = run[entry], microbatch[entry], posted[entry], start[entry]
        cause = np.full(len(entry), -1, np.int64)
        where = np.flatnonzero(run < 0)
        at, begin, base = every.first[-1 - run[where]] + inside[where], posted[where], start[where].astype(np.int64)
        run[where], microbatch[where] = every.rows.run[at], microbatch[where] + every.rows.microbatch[at]
        posted[where], start[where] = begin + every.rows.posted[at], begin + every.rows.start[at]
        known = every.rows.source[at] >= 0
        bases, of = np.array(record.bases, np.int64), base[known] + 2 * every.rows.source[at[known]]
        cause[where[known]] = self.offset[bases[of]] + bases[of + 1] + every.rows.cause[at[known]]
        return run, microbatch, posted, start, cause

    @cached_property
    def _passages(self) -> FlatPassages:
        """All passages behind each other."""
        size = np.array([passage.size for passage in self.passages], np.int64)
        rows = Passage(*(np.concatenate(column) for column in zip(*self.passages, strict=True)))
        return FlatPassages(size, np.cumsum(size) - size, rows)

    def _marked(self, number: int) -> tuple[Ints, Ints]:
        """The literal rows of chain *number*, and how many marks each has."""
        row, size = np.frombuffer(self.records[number].marked, np.int64).reshape(-1, 2).T
        return row, size

    def _times(self, number: int, row: Ints, inside: Ints) -> tuple[Floats, Floats, Floats]:
        """(Posted, start, end) of spans, each given by its row and its place in there. All decoding ends up here."""
        rows, flat, marks = self.rows(number), self.run_spans, self.records[number].marks
        at, origin, scale = flat.first[rows.run[row]] + inside, rows.start[row], rows.scale[row]
        posted, start, end = (origin + self._scaled(of[at], scale) for of in (flat.posted, flat.start, flat.end))
        if marks:  # literal rows: their ends one row behind the other, and where each row begins there
            marked, size = self._marked(number)
            first = np.zeros(len(rows.run), np.int64)
            first[marked] = np.cumsum(size) - size
            true = np.frombuffer(marks)
            literal = rows.literal[row]
            end[literal] = true[(first[row] + inside)[literal]]
            later = literal & (inside > 0)
            start[later] = posted[later] = true[(first[row] + inside - 1)[later]]
        return np.where(inside == 0, rows.posted[row], posted), start, end

    def _scaled(self, offset: Floats, scale: Floats) -> Floats:
        """Offsets in a run times the scale of its row, in whole ticks."""
        if (scale == 1.0).all():
            return offset
        scaled: Floats = np.round(offset * scale / self.tick) * self.tick
        return scaled
