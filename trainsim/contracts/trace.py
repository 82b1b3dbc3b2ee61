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

from trainsim.contracts.decoding import Marks, Rows, RunSpans, decoded, marks, scaled
from trainsim.contracts.exact import TICK
from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Memory
from trainsim.contracts.record import Label, Passage, Record, Run, TaskFacts, Tasks
from trainsim.errors import UnknownName

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_flatten = chains_of.from_iterable


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

    @cached_property
    def every_row(self) -> Rows:
        """The rows of all chains, one behind the other."""
        spans, marked = self.run_spans, self._marks
        return decoded(self.records, self.passages, offset=self.offset, spans=spans, marked=marked, tick=self.tick)

    @cached_property
    def _marks(self) -> Marks:
        return marks(self.records, self.offset)

    def rows(self, number: int) -> Rows:
        """The rows of chain *number*."""
        if number not in self._rows:
            self._rows[number] = self.every_row.part(*self.offset[number : number + 2].tolist())
        return self._rows[number]

    def spans(self, rank: int, chain: str) -> Spans:
        """All spans of one chain of a rank, whether they shared or not."""
        return self.spans_of(self._chain(rank, chain))

    def spans_of(self, number: int, which: Ints | None = None) -> Spans:
        """The spans of chain *number*: all, or those of the rows *which*."""
        begin, end = self.offset[number : number + 2].tolist()
        spans = self.every_span(np.arange(begin, end) if which is None else which + begin)
        return spans._replace(row=spans.row - begin)

    def every_span(self, row: Ints) -> Spans:
        """The spans of some rows, counted through all chains, as those of the result are."""
        rows, flat = self.every_row, self.run_spans
        run = rows.run[row]
        size = flat.size[run]
        # 0, 1, ... within each row: a running number less the number at which its row begins.
        inside = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        label = flat.label[np.repeat(flat.first[run], size) + inside]
        row = np.repeat(row, size)
        return Spans(label, rows.microbatch[row], *self._times(row, inside), row)

    def span_times(self, number: Ints, spans: Ints) -> tuple[Floats, Floats]:
        """When some *spans* of chains, each counted from the first one of the chain *number* that it is in, were posted
        and when they ended."""
        # Span n is in the first row whose spans, and those of all rows before it, are more than n.
        size = self.run_spans.size[self.every_row.run]
        ends = np.cumsum(size)
        spans = spans + np.append(0, ends)[self.offset[number]]
        row = np.searchsorted(ends, spans, side="right")
        posted, _, end = self._times(row, spans - (ends - size)[row])
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
        return float(self.every_row.end.max(initial=0.0))

    @property
    def row_count(self) -> int:
        """Rows of all chains."""
        return int(self.offset[-1])

    @cached_property
    def operations(self) -> int:
        """Spans of the representatives: what the engine carried out."""
        return int(self.run_spans.size[self.every_row.run].sum())

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

    def _times(self, row: Ints, inside: Ints) -> tuple[Floats, Floats, Floats]:
        """(Posted, start, end) of spans, each given by its row, counted through all chains, and its place in there. All
        decoding ends up here."""
        rows, flat, marked = self.every_row, self.run_spans, self._marks
        at, origin, scale = flat.first[rows.run[row]] + inside, rows.start[row], rows.scale[row]
        posted, start, end = (origin + scaled(of[at], scale, self.tick) for of in (flat.posted, flat.start, flat.end))
        if len(marked.row):  # literal rows: their ends one row behind the other, and where each row begins there
            first = np.zeros(len(rows.run), np.int64)
            first[marked.row] = marked.first
            literal = np.flatnonzero(rows.literal[row])
            end[literal] = marked.ends[(first[row] + inside)[literal]]
            later = literal[inside[literal] > 0]
            start[later] = posted[later] = marked.ends[(first[row] + inside - 1)[later]]
        return np.where(inside == 0, rows.posted[row], posted), start, end
