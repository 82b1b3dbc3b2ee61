"""Sets of intervals: what some cover, where two overlap, and when a sum of loads is too much."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trainsim.contracts.system import Floats
from trainsim.report.intervals import NONE, Intervals, without


class Loading(NamedTuple):
    """Spans (seconds) that take a part of a link each while they run at full speed."""

    start: Floats
    end: Floats
    load: Floats


def covered(parts: Iterable[tuple[Floats, Floats]]) -> Intervals:
    """All moments of *parts*, columns of starts and ends that may lie over each other.

    >>> covered([(np.array([0.0, 1.0]), np.array([3.0, 2.0])), (np.array([3.0, 5.0]), np.array([4.0, 6.0]))]).end
    array([4., 6.])
    """
    start, end = (np.concatenate([NONE.start, *columns]) for columns in zip(NONE, *parts, strict=True))
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    if not len(start):
        return NONE
    heads = np.flatnonzero(np.append(True, start[1:] > end[:-1]))
    return Intervals(start[heads], end[np.append(heads[1:], len(end)) - 1])


def overlap(a: Intervals, b: Intervals) -> Intervals:
    """When both are.

    >>> one, other = Intervals(np.zeros(1), np.full(1, 4.0)), Intervals(np.array([1.0, 3.0]), np.array([2.0, 9.0]))
    >>> both = overlap(one, other)
    >>> both.start.tolist(), both.end.tolist()
    ([1.0, 3.0], [2.0, 4.0])
    """
    if not (len(a.start) and len(b.start)):
        return NONE
    return without(a, without(a, b)[0])[0]


def too_much(loadings: Iterable[Loading], most: float) -> Intervals:
    """When all *loadings* together take more than *most*.

    >>> one = Loading(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([0.6, 0.6]))
    >>> too_much([one], 1.0)
    Intervals(start=array([1.]), end=array([2.]))
    """
    parts = list(loadings)
    if not parts:
        return NONE
    start, end, load = (np.concatenate(column) for column in zip(*parts, strict=True))
    moments, which = np.unique(np.concatenate([start, end]), return_inverse=True)
    asked = np.cumsum(np.bincount(which.ravel(), np.concatenate([load, -load]), len(moments)))[:-1]
    over = asked > most
    return covered([(moments[:-1][over], moments[1:][over])])
