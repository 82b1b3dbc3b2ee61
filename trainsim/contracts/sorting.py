"""
Sorted columns of whole numbers, fast: each number carries its place in its low bits, so that one sort of plain
integers, which processors do many at a time, gives the order as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
WIDEST = 63  # bits of a number that is 0 or more


class Numbered(NamedTuple):
    """The different ``values`` of a column, ascending, where each comes ``first``, and the number of each row's."""

    values: Ints
    first: Ints
    number: Ints


def order_of(column: Ints) -> Ints:
    """The order that sorts *column* (numbers of 0 or more); equal ones stay as they are.

    >>> order_of(np.array([7, 3, 7, 0])).tolist()
    [3, 1, 0, 2]
    """
    return _sorted(column)[1]


def numbered(column: Ints) -> Numbered:
    """Dense numbers for the values of *column* (0 or more), as ``np.unique`` gives them.

    >>> [part.tolist() for part in numbered(np.array([7, 3, 7, 0]))]
    [[0, 3, 7], [3, 1, 0], [2, 1, 2, 0]]
    """
    ascending, order = _sorted(column)
    begins = np.ones(len(column), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    number = np.empty(len(column), np.int64)
    number[order] = np.cumsum(begins) - 1
    return Numbered(ascending[begins], order[begins], number)


def _sorted(column: Ints) -> tuple[Ints, Ints]:
    """*column* ascending, and the order that makes it so."""
    bits = len(column).bit_length()
    if int(column.max(initial=0)) >> (WIDEST - bits):  # no room for the places
        order = np.argsort(column, kind="stable")
        return column[order], order
    keys = column << bits
    keys |= np.arange(len(column), dtype=np.int64)
    keys.sort()
    return keys >> bits, keys & ((1 << bits) - 1)
