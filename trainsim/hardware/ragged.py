"""
Ragged rows as numpy columns: many routes of different lengths, put together without a loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def expand_rows(start: Ints, values: Ints, parts: Sequence[tuple[Ints, Ints] | Ints]) -> tuple[Ints, Ints]:
    """(Index of the item, value) for the parts of each item, one after another.

    A part is either (per item a row of the table, which is ``values[start[row]:start[row + 1]]``, and a number to add),
    or a matrix with a row per item in which -1 means nothing.

    >>> start, values = np.array([0, 0, 2]), np.array([7, 8])
    >>> item, value = expand_rows(start, values, [(np.array([1, 0]), np.array([10, 0])), np.array([[3], [-1]])])
    >>> item.tolist(), value.tolist()
    ([0, 0, 0], [17, 18, 3])
    """
    lengths = [np.diff(start)[p[0]] if isinstance(p, tuple) else (p >= 0).sum(axis=1) for p in parts]
    total = np.sum(lengths, axis=0)
    begin = np.cumsum(total) - total
    items = np.repeat(np.arange(len(total), dtype=np.int64), total)
    result = np.empty(len(items), np.int64)
    for part, length in zip(parts, lengths, strict=True):
        where = _within(begin, length)
        if isinstance(part, tuple):
            row, offset = part
            result[where] = values[_within(start[row], length)] + np.repeat(offset, length)
        else:
            result[where] = part[part >= 0]
        begin = begin + length
    return items, result


def _within(begin: Ints, length: Ints) -> Ints:
    """begin[0], begin[0] + 1, ... (length[0] numbers), begin[1], ..."""
    skipped = np.cumsum(length) - length
    return np.repeat(begin - skipped, length) + np.arange(int(length.sum()), dtype=np.int64)
