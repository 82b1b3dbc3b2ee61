"""From what the engine wrote to the rows of a trace, of all chains at once: chains are many, and most are short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.record import Passage, Record

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """Rows as columns. ``run`` indexes ``Trace.runs``, ``task`` the tasks of the chain; ``cause`` is the
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

    def part(self, begin: int, end: int) -> Rows:
        """The rows from *begin* to *end*."""
        columns: list[Any] = [column[begin:end] for column in self]
        return Rows(*columns)


class RunSpans(NamedTuple):
    """All runs behind each other: sizes and first spans by run, the rest by span; ``alone`` is seconds."""

    size: Ints
    first: Ints
    label: Ints
    posted: Floats
    start: Floats
    end: Floats
    alone: Floats


class Marks(NamedTuple):
    """The true ends of the spans of literal rows: ``row``, counted through all chains, has ``size`` of the ``ends``
    from ``first`` on."""

    row: Ints
    size: Ints
    first: Ints
    ends: Floats


class _Passages(NamedTuple):
    """All passages behind each other, as one: ``rows``; sizes and first rows by passage."""

    size: Ints
    first: Ints
    rows: Passage


class _Entries(NamedTuple):
    """The first columns of all rows, those of passages written out."""

    run: Ints
    microbatch: Ints
    posted: Floats
    start: Floats
    cause: Ints


def scaled(offset: Floats, scale: Floats, tick: float) -> Floats:
    """Offsets in a run times the scale of its row, in whole ticks."""
    if (scale == 1.0).all():
        return offset
    times: Floats = np.round(offset * scale / tick) * tick
    return times


def marks(records: Sequence[Record], offset: Ints) -> Marks:
    """All marks of *records*, whose rows begin at *offset*."""
    row, size = _joined([record.marked for record in records], np.int64).reshape(-1, 2).T
    row = row + np.repeat(offset[:-1], [len(record.marked) // 2 for record in records])
    return Marks(row, size, np.cumsum(size) - size, _joined([record.marks for record in records], np.float64))


def decoded(
    records: Sequence[Record], passages: Sequence[Passage], *, offset: Ints, spans: RunSpans, marked: Marks, tick: float
) -> Rows:
    """The rows of all *records*, one behind the other."""
    run, microbatch, posted, start, cause = _entries(records, passages, offset)
    scale = np.ones(len(run))
    for k, record in enumerate(records):
        if record.scales:
            scale[offset[k] : offset[k + 1]] = record.scales
    end = start + scaled(spans.end[spans.first[run] + spans.size[run] - 1], scale, tick)
    literal = np.zeros(len(run), bool)
    literal[marked.row] = True
    end[marked.row] = marked.ends[marked.first + marked.size - 1]
    row, chain, there = _joined([record.causes for record in records], np.int64).reshape(-1, 3).T
    cause[row + np.repeat(offset[:-1], [len(record.causes) // 3 for record in records])] = offset[chain] + there
    return Rows(run, microbatch, posted, start, end, scale, _tasks(records, offset), cause, literal)


def _tasks(records: Sequence[Record], offset: Ints) -> Ints:
    """The task of each row: ``tasks[k]`` rows were there when task k was over, so row n belongs to the first task that
    saw more than n."""
    sizes = np.array([len(record.tasks) for record in records], np.int64)
    over = _joined([record.tasks for record in records], np.int64) + np.repeat(offset[:-1], sizes)
    before = np.repeat(np.cumsum(sizes) - sizes, np.diff(offset))
    return np.searchsorted(over, np.arange(int(offset[-1])), side="right") - before


def _entries(records: Sequence[Record], passages: Sequence[Passage], offset: Ints) -> _Entries:
    table = _joined([record.table for record in records], np.float64).reshape(-1, 4).T
    run, microbatch, posted, start = table[0].astype(np.int64), table[1].astype(np.int64), table[2], table[3]
    if len(run) == offset[-1] and not (run < 0).any():
        return _Entries(run, microbatch, posted.copy(), start.copy(), np.full(len(run), -1, np.int64))
    every, passage = _flat(passages), np.where(run < 0, -1 - run, 0)
    size = np.where(run < 0, every.size[passage], 1)
    entry = np.repeat(np.arange(len(run)), size)
    inside = np.arange(len(entry)) - np.repeat(np.cumsum(size) - size, size)
    counts = [len(record.bases) for record in records]
    shift = np.repeat(np.cumsum([0, *counts])[:-1], [len(record.table) // 4 for record in records])[entry]
    run, microbatch, posted, start = run[entry], microbatch[entry], posted[entry], start[entry]
    cause = np.full(len(entry), -1, np.int64)
    where = np.flatnonzero(run < 0)
    at, begin, base = every.first[-1 - run[where]] + inside[where], posted[where], start[where].astype(np.int64)
    run[where], microbatch[where] = every.rows.run[at], microbatch[where] + every.rows.microbatch[at]
    posted[where], start[where] = begin + every.rows.posted[at], begin + every.rows.start[at]
    known = every.rows.source[at] >= 0
    bases = _joined([record.bases for record in records], np.int64)
    of = (shift[where] + base)[known] + 2 * every.rows.source[at[known]]
    cause[where[known]] = offset[bases[of]] + bases[of + 1] + every.rows.cause[at[known]]
    return _Entries(run, microbatch, posted, start, cause)


def _flat(passages: Sequence[Passage]) -> _Passages:
    size = np.array([passage.size for passage in passages], np.int64)
    rows = Passage(*(np.concatenate(column) for column in zip(*passages, strict=True)))
    return _Passages(size, np.cumsum(size) - size, rows)


def _joined(columns: Sequence[Any], kind: type[np.generic]) -> npt.NDArray[Any]:
    """All *columns* behind each other."""
    filled = [np.frombuffer(column, kind) for column in columns if len(column)]
    return np.concatenate(filled) if filled else np.zeros(0, kind)
