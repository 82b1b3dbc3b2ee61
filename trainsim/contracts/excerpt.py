"""A part of a trace: the ranks of one job of several, as the trace of that job alone."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import numpy as np

from trainsim.contracts.record import Record, Tasks
from trainsim.contracts.trace import Ints, Trace


def excerpt(trace: Trace, first: int, ranks: int, *, start: float = 0.0, skipped: str = "") -> Trace:
    """The trace of *ranks* ranks from *first* on, counted from there, and from *start* (seconds, whole ticks) on.

    They share no class with others. First tasks whose work is *skipped* are left out; what they let start, started by
    itself. Rows are those of ``trace``, none is left out.
    """
    return _TracePart(trace, first, ranks, start, skipped).trace


class _TracePart:
    """Numbers of classes, chains and runs of the part, by those of the whole."""

    def __init__(self, whole: Trace, first: int, ranks: int, start: float, skipped: str):
        self.whole, self.start = whole, start
        classes, rank_class = np.unique(whole.rank_class[first : first + ranks], return_inverse=True)
        self.chains = [k for k, (owner, _) in enumerate(whole.chains) if owner in set(classes.tolist())]
        self.number = np.full(len(whole.chains), -1, np.int64)
        self.number[self.chains] = np.arange(len(self.chains))
        works = [facts.work for facts in whole.facts]
        begins = [tasks.facts[:1].tolist() for tasks in whole.tasks]
        self.skip = np.array([bool(some) and bool(skipped) and works[some[0]] == skipped for some in begins], np.int64)
        rows = whole.every_row.run
        self.runs = np.unique(np.concatenate([rows[slice(*self._bounds(k))] for k in self.chains]))
        self.trace = replace(
            whole,
            rank_class=rank_class.ravel().astype(np.int64),
            representative=whole.representative[classes] - first,
            stage=whole.stage[classes],
            parameters=whole.parameters[classes],
            memory=tuple(whole.memory[c] for c in classes.tolist()),
            runs=[whole.runs[k] for k in self.runs.tolist()],
            chains=tuple(self._chain(k, classes) for k in self.chains),
            records=tuple(map(self._record, self.chains)),
            tasks=tuple(map(self._tasks, self.chains)),
            messages={
                name: m for name, m in whole.messages.items() if name in {whole.chains[k][1] for k in self.chains}
            },
            passages=(),
        )

    def _bounds(self, chain: int) -> tuple[int, int]:
        begin, end = self.whole.offset[chain : chain + 2].tolist()
        return begin, end

    def _chain(self, chain: int, classes: Ints) -> tuple[int, str]:
        owner, name = self.whole.chains[chain]
        return int(np.searchsorted(classes, owner)), name

    def _tasks(self, chain: int) -> Tasks:
        facts, microbatch = self.whole.tasks[chain]
        return Tasks(facts[self.skip[chain] :], microbatch[self.skip[chain] :])

    def _record(self, chain: int) -> Record:
        """The rows of a chain, those of passages written out."""
        rows, record, skip = self.whole.rows(chain), self.whole.records[chain], int(self.skip[chain])
        run = np.searchsorted(self.runs, rows.run)
        times = rows.posted - self.start, rows.start - self.start
        table = np.stack([run.astype(np.float64), rows.microbatch.astype(np.float64), *times], axis=1)[skip:]
        marked = np.array(record.marked, np.int64).reshape(-1, 2) - np.array([skip, 0])
        scaled = bool((rows.scale != 1.0).any())
        return Record(
            table=_column("d", table),
            scales=_column("d", rows.scale[skip:]) if scaled else array("d"),
            marked=_column("q", marked),
            marks=_column("d", np.array(record.marks, np.float64) - self.start),
            causes=_column("q", self._causes(rows.cause, skip)),
            tasks=_column("q", np.array(record.tasks, np.int64)[skip:] - skip),
        )

    def _causes(self, cause: Ints, skip: int) -> Ints:
        """(Row, chain, row there) of what let rows start that was not the row before."""
        row = np.flatnonzero(cause >= 0)
        chain = np.searchsorted(self.whole.offset, cause[row], side="right") - 1
        there = cause[row] - self.whole.offset[chain] - self.skip[chain]
        out = np.stack([row - skip, self.number[chain], there], axis=1)
        return out[(out[:, 0] >= 0) & (there >= 0)]


def _column(kind: str, values: Any) -> array[Any]:
    """*values*, row by row, as a column of a record."""
    column: array[Any] = array(kind)
    column.frombytes(np.ascontiguousarray(values, np.float64 if kind == "d" else np.int64).tobytes())
    return column
