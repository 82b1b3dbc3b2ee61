"""
Contract 2: what happened, folded. One row per run of spans and class of ranks; spans are expanded on demand.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain as chains_of
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Task
from trainsim.errors import UnknownName

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_flatten = chains_of.from_iterable


class Label(NamedTuple):
    """What a span is, whatever the microbatch."""

    name: str
    kind: str
    stream: str
    layer: int


class Run(NamedTuple):
    """What a row stands for: spans at fixed offsets (seconds) from the row's start."""

    labels: tuple[Label, ...]
    posted: tuple[float, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]


@dataclass(slots=True)
class Rows:
    """One chain of one class. The table holds 4 numbers per row: run, microbatch, posted, start.

    ``marks[row]`` are the true ends of the spans of a row that had to share a resource: each but the first starts
    where the one before ends. ``causes[row]`` is the (chain, row) whose end let a row start, where that was not the
    end of the row before. ``tasks[k]`` is the number of rows in the table when task k of the program ended.
    """

    table: array[float] = field(default_factory=lambda: array("d"))
    marks: dict[int, list[float]] = field(default_factory=dict)
    causes: dict[int, tuple[int, int]] = field(default_factory=dict)
    tasks: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.table) // 4


class Spans(NamedTuple):
    """Spans as equally long columns, in the order of the chain. ``label`` indexes ``Trace.labels``."""

    label: Ints
    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats


class Tasks(NamedTuple):
    """Tasks of a chain as columns: when its first span was posted, when it started, when the last one ended.

    A task without spans is over at once: all three are the end of the row before it.
    """

    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats


class RowTimes(NamedTuple):
    """The rows of a chain as columns; ``run`` indexes ``Trace.runs``."""

    run: Ints
    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats


@dataclass(kw_only=True, repr=False, eq=False)
class Trace:
    """The step of every rank: ``rank_class`` says whose rows are a rank's.

    ``chains`` numbers the pairs (class, chain name); ``rows[k]`` belong to ``chains[k]``, and so do the
    ``tasks[k]`` of the program. Messages have rows of their own, without tasks, in the order in which they were sent:
    ``messages`` says what the chains carry that are such rows.
    """

    rank_class: Ints
    representative: Ints
    runs: list[Run]
    chains: tuple[tuple[int, str], ...]
    rows: tuple[Rows, ...]
    tasks: tuple[tuple[Task, ...], ...]
    messages: Mapping[str, Messages] = field(default_factory=dict)
    events: int = 0

    @cached_property
    def number(self) -> dict[tuple[int, str], int]:
        return {chain: k for k, chain in enumerate(self.chains)}

    @property
    def classes(self) -> int:
        return len(self.representative)

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """All labels of the step, each once."""
        shared = {id(run.labels): run.labels for run in self.runs}
        return tuple(dict.fromkeys(label for labels in shared.values() for label in labels))

    def title(self, chain: str) -> str:
        """The name of a chain for readers: that of the messages that it carries, or its own."""
        return str(self.messages.get(chain, chain))

    def chain_names(self, rank: int) -> tuple[str, ...]:
        """The chains of a rank, those of its messages last."""
        return self._names[int(self.rank_class[rank])]

    def spans(self, rank: int, chain: str) -> Spans:
        """All spans of one chain of a rank, whether they shared or not."""
        k = self._chain(rank, chain)
        rows, flat = self._columns(k), self._flat
        size = flat.size[rows.run]
        at = np.cumsum(size) - size
        which = np.repeat(flat.first[rows.run] - at, size) + np.arange(int(size.sum()))
        origin = np.repeat(rows.start, size)
        posted, start, end = origin + flat.posted[which], origin + flat.start[which], origin + flat.end[which]
        posted[at] = rows.posted
        if marks := self.rows[k].marks:
            row = np.fromiter(marks, np.int64, len(marks))
            ends = np.array(list(_flatten(marks.values())))
            inside = np.repeat(at[row] - (np.cumsum(size[row]) - size[row]), size[row]) + np.arange(len(ends))
            end[inside] = ends
            later = inside[~np.isin(inside, at[row])]
            start[later] = posted[later] = end[later - 1]
        return Spans(flat.label[which], np.repeat(rows.microbatch, size), posted, start, end)

    def span_times(self, number: int, spans: Ints) -> tuple[Floats, Floats]:
        """When some *spans* of chain *number*, counted from its first one, were posted and when they ended."""
        rows, flat = self._columns(number), self._flat
        ends = np.cumsum(flat.size[rows.run])
        row = np.searchsorted(ends, spans, side="right")
        inner = spans - (ends - flat.size[rows.run])[row]
        which = flat.first[rows.run[row]] + inner
        posted = np.where(inner == 0, rows.posted[row], rows.start[row] + flat.posted[which])
        end = rows.start[row] + flat.end[which]
        if marks := self.rows[number].marks:
            first = np.zeros(len(rows.run), np.int64)
            size = np.fromiter(map(len, marks.values()), np.int64, len(marks))
            at = np.fromiter(marks, np.int64, len(marks))
            first[at] = np.cumsum(size) - size + 1  # 0: a row without marks
            true = np.array([0.0, *_flatten(marks.values())])
            shared = first[row] > 0
            end[shared] = true[(first[row] + inner)[shared]]
            later = shared & (inner > 0)
            posted[later] = true[(first[row] + inner - 1)[later]]
        return posted, end

    def task_times(self, rank: int, chain: str) -> Tasks:
        """When each task of one chain of a rank was posted, started and ended."""
        k = self._chain(rank, chain)
        rows, last = self.row_times(k), np.array(self.rows[k].tasks, np.int64)
        first = np.concatenate([[0], last[:-1]]).astype(np.int64)[: len(last)]
        before = np.concatenate([[0.0], rows.end])
        empty = first == last
        posted, start = (np.append(column, 0.0)[first] for column in (rows.posted, rows.start))
        return Tasks(
            np.array([task.microbatch for task in self.tasks[k]], np.int64),
            np.where(empty, before[first], posted),
            np.where(empty, before[first], start),
            before[last],
        )

    def row_times(self, number: int) -> RowTimes:
        """The rows of chain *number*: its runs, when they were posted, started and ended."""
        rows = self._columns(number)
        last = self._flat.first + self._flat.size - 1
        end = rows.start + self._flat.end[last[rows.run]]
        for row, marks in self.rows[number].marks.items():
            end[row] = marks[-1]
        return rows._replace(end=end)

    def cause(self, number: int, row: int) -> tuple[int, int] | None:
        """The (chain, row) whose end let this row start; None at the start of the step."""
        return self.rows[number].causes.get(row, (number, row - 1) if row else None)

    def chain_end(self, rank: int, chain: str) -> float:
        """When the last span of a chain of a rank ended, in seconds; 0 if it has none."""
        return float(self.row_times(self._chain(rank, chain)).end.max(initial=0.0))

    @cached_property
    def duration(self) -> float:
        """When the last span of all ended, in seconds."""
        return max((float(self.row_times(k).end.max(initial=0.0)) for k in range(len(self.rows))), default=0.0)

    @property
    def row_count(self) -> int:
        """Rows of all chains."""
        return sum(len(rows) for rows in self.rows)

    @cached_property
    def operations(self) -> int:
        """Spans of the representatives: what the engine carried out."""
        return sum(int(self._flat.size[self._columns(k).run].sum()) for k in range(len(self.rows)))

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], ...]:
        names: list[list[str]] = [[] for _ in range(self.classes)]
        for rank_class, name in self.chains:
            names[rank_class].append(name)
        return tuple(map(tuple, names))

    def _chain(self, rank: int, chain: str) -> int:
        if not 0 <= rank < len(self.rank_class):
            raise UnknownName("rank", str(rank), [f"0 to {len(self.rank_class) - 1}"])
        number = self.number.get((int(self.rank_class[rank]), chain))
        if number is None:
            raise UnknownName(f"chain of rank {rank}", chain, self.chain_names(rank))
        return number

    def _columns(self, number: int) -> RowTimes:
        table = np.array(self.rows[number].table).reshape(-1, 4).T
        return RowTimes(table[0].astype(np.int64), table[1].astype(np.int64), table[2], table[3], table[3])

    @cached_property
    def _flat(self) -> _Flat:
        number = {label: k for k, label in enumerate(self.labels)}
        numbered = {id(run.labels): [number[label] for label in run.labels] for run in self.runs}
        size = np.array([len(run.labels) for run in self.runs], np.int64)
        return _Flat(
            size=size,
            first=np.cumsum(size) - size,
            label=np.array(list(_flatten(numbered[id(run.labels)] for run in self.runs)), np.int64),
            posted=np.array(list(_flatten(run.posted for run in self.runs))),
            start=np.array(list(_flatten(run.starts for run in self.runs))),
            end=np.array(list(_flatten(run.ends for run in self.runs))),
        )


class _Flat(NamedTuple):
    """All runs behind each other: sizes and first spans by run, the rest by span."""

    size: Ints
    first: Ints
    label: Ints
    posted: Floats
    start: Floats
    end: Floats
