"""Sets of intervals as columns: what pictures are cut and merged with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trainsim.analysis.lanes import Bools, Floats, Ints


class Intervals(NamedTuple):
    """Equally long columns of starts and ends (seconds): in rising order, none over another."""

    start: Floats
    end: Floats

    @property
    def seconds(self) -> Floats:
        """How long each is."""
        return self.end - self.start

    @property
    def total(self) -> float:
        """How long all are together."""
        return float(self.seconds.sum())

    def where(self, which: Bools | Ints) -> Intervals:
        """Some of them."""
        return Intervals(self.start[which], self.end[which])

    def clipped(self, window: tuple[float, float]) -> Intervals:
        """What lies in *window*."""
        first, last = window
        inside = self.where((self.end > first) & (self.start < last))
        return Intervals(inside.start.clip(first), inside.end.clip(max=last))


NONE = Intervals(np.zeros(0), np.zeros(0))


def union(parts: Iterable[Intervals]) -> Intervals:
    """All of *parts*, of which none lies over another.

    >>> union([Intervals(np.array([0.0, 4.0]), np.array([1.0, 5.0])), Intervals(np.array([2.0]), np.array([3.0]))])[0]
    array([0., 2., 4.])
    """
    start, end = (np.concatenate([NONE.start, *columns]) for columns in zip(NONE, *parts, strict=True))
    order = np.argsort(start, kind="stable")
    return Intervals(start[order], end[order])


def joined(spans: Intervals, gap: float = 0.0) -> tuple[Intervals, Floats]:
    """*spans*, those joined that are not more than *gap* apart; and the share of each that was in the spans.

    >>> whole, share = joined(Intervals(np.array([0.0, 1.5, 5.0]), np.array([1.0, 2.0, 6.0])), 0.6)
    >>> whole.end.tolist(), share.tolist()
    ([2.0, 6.0], [0.75, 1.0])
    """
    if not len(spans.start):
        return spans, spans.start
    apart = spans.start[1:] - spans.end[:-1] > gap
    heads, tails = np.flatnonzero(np.append(True, apart)), np.flatnonzero(np.append(apart, True))
    whole = Intervals(spans.start[heads], spans.end[tails])
    inside = np.add.reduceat(spans.seconds, heads)
    return whole, np.clip(inside / np.maximum(whole.seconds, 1e-300), 0.0, 1.0)


def without(spans: Intervals, holes: Intervals) -> tuple[Intervals, Ints]:
    """What *holes* leave of *spans*, and which of the spans each piece is from.

    >>> rest, origin = without(Intervals(np.array([0.0]), np.array([9.0])), Intervals(np.array([2.0]), np.array([3.0])))
    >>> rest.start.tolist(), rest.end.tolist(), origin.tolist()
    ([0.0, 3.0], [2.0, 9.0], [0, 0])
    """
    points = np.unique(np.concatenate([*spans, *holes]))
    middle = (points[1:] + points[:-1]) / 2
    origin, free = _inside(spans, middle), _inside(holes, middle) < 0
    kept = np.flatnonzero((origin >= 0) & free)
    new = np.append(True, (kept[1:] != kept[:-1] + 1) | (origin[kept[1:]] != origin[kept[:-1]]))[: len(kept)]
    heads, tails = np.flatnonzero(new), np.flatnonzero(np.append(new[1:], True)[: len(kept)])
    return Intervals(points[kept[heads]], points[kept[tails] + 1]), origin[kept[heads]]


def _inside(spans: Intervals, at: Floats) -> Ints:
    """Which of *spans* each moment lies in, or -1."""
    if not len(spans.start):
        return np.full(len(at), -1)
    before = np.searchsorted(spans.start, at, side="right") - 1
    return np.where((before >= 0) & (at < spans.end[before]), before, -1)


def seconds_until(spans: Intervals, at: Floats) -> Floats:
    """How much of *spans* lies before each moment.

    >>> seconds_until(Intervals(np.array([1.0, 4.0]), np.array([2.0, 6.0])), np.array([0.0, 1.5, 3.0, 9.0])).tolist()
    [0.0, 0.5, 1.0, 3.0]
    """
    if not len(spans.start):
        return np.zeros(len(at))
    before = np.maximum(np.searchsorted(spans.start, at, side="right") - 1, 0)
    whole = np.concatenate([[0.0], np.cumsum(spans.seconds)])[before]
    return whole + np.clip(at - spans.start[before], 0.0, spans.seconds[before])
