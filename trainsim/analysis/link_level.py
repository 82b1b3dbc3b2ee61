"""How full a link is over time: levels of operations that come and go, and their means in windows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.analysis.kinds import COMMUNICATION

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FULL, CLOSE, TINY = 1.0 + 1e-6, 1e-7, 1e-300
"""Of a link: more is too much; so much too much may stay; no time at all."""
ROUNDS = 100
"""How often what is too much moves at the most."""


class LinkLevel(NamedTuple):
    """A staircase: from each of ``times`` (seconds) to the next, ``parts`` [kinds, steps] of a link are in use."""

    times: Floats
    parts: Floats

    @property
    def peak(self) -> float:
        """The highest level that lasts."""
        return float(self.parts.sum(axis=0)[np.diff(self.times) > 0].max(initial=0.0))

    def above(self, part: float) -> float:
        """Seconds in which more than *part* of the link is in use."""
        return float(np.diff(self.times)[self.parts.sum(axis=0) > part].sum())

    def mean(self, edges: Floats) -> Floats:
        """The mean of each kind in the windows between *edges* [kinds, windows]."""
        if len(self.times) < 2:
            return np.zeros((len(self.parts), len(edges) - 1))
        spent = np.cumsum(self.parts * np.diff(self.times), axis=1)
        spent = np.concatenate([np.zeros((len(spent), 1)), spent], axis=1)
        at = np.stack([np.interp(edges, self.times, row) for row in spent])
        return np.asarray(np.diff(at, axis=1) / np.diff(edges), np.float64)


def level(kind: Ints, start: Floats, end: Floats, seconds: Floats) -> LinkLevel:
    """The level of operations, each of which takes the whole link for *seconds* between *start* and *end*.

    An operation spreads evenly over its time. Where that would be more than the link carries, because others slow it
    for a part of its time, as much as is too much moves to its other moments. One whose time is too short for what it
    moves is the end of something that ran under what was before it, and begins earlier.

    >>> found = level(np.array([0, 4]), np.zeros(2), np.array([4.0, 2.0]), np.array([3.0, 1.0]))
    >>> found.times.tolist(), found.parts.sum(axis=0).round(6).tolist()
    ([0.0, 2.0, 4.0], [1.0, 1.0])
    """
    start = np.where(too_short(start, end, seconds), np.maximum(end - seconds, 0.0), start)
    times = np.unique(np.concatenate([start, end]))
    first, last = np.searchsorted(times, start), np.searchsorted(times, end)
    rate = seconds / (end - start)
    parts = _sums(kind, first, last, rate, steps=max(len(times) - 1, 0))
    slowed = _meet(first, last, parts.sum(axis=0) > FULL)
    slowed = _meet(first, last, _covered(first[slowed], last[slowed], parts.shape[1]))  # and whom they may slow in turn
    if slowed.any():
        still = ~slowed
        others = _sums(kind[still], first[still], last[still], rate[still], steps=parts.shape[1])
        # Equal ones as one, so that it does not matter how many ranks a class has.
        same, which = np.unique(np.stack([kind, first, last])[:, slowed], axis=1, return_inverse=True)
        together = np.bincount(which.ravel(), seconds[slowed]).astype(np.float64)
        parts = others + _moved(same, together, room=1.0 - others.sum(axis=0), lengths=np.diff(times))
    return LinkLevel(times, parts)


def too_short(start: Floats, end: Floats, seconds: Floats) -> Bools:
    """Whether operations take longer than they are seen; times are whole ticks, which is not meant."""
    return np.asarray(seconds > FULL * (end - start), np.bool_)


def _meet(first: Ints, last: Ints, steps: Bools) -> Bools:
    """Which operations go on in any of some *steps*."""
    before = np.append(0, np.cumsum(steps))
    return np.asarray(before[last] > before[first], np.bool_)


def _covered(first: Ints, last: Ints, steps: int) -> Bools:
    """The steps in which any operation goes on."""
    change = np.bincount(first, minlength=steps + 1) - np.bincount(last, minlength=steps + 1)
    return np.asarray(np.cumsum(change)[:-1] > 0, np.bool_)


def _sums(kind: Ints, first: Ints, last: Ints, rate: Floats, *, steps: int) -> Floats:
    """The level of each kind [kinds, steps] of operations that go on at a constant rate."""
    parts = np.zeros((len(COMMUNICATION), steps))
    for k in np.unique(kind).tolist():
        of = kind == k
        change = np.bincount(first[of], rate[of], steps + 1) - np.bincount(last[of], rate[of], steps + 1)
        parts[k] = np.maximum(np.cumsum(change)[:-1], 0.0)
    return parts


def _moved(operations: Ints, seconds: Floats, *, room: Floats, lengths: Floats) -> Floats:
    """The level of operations (rows: kind, first and last step) that slow each other [kinds, steps]; each step has
    *room* for so much."""
    kind, first, last = operations
    size, steps = last - first, len(lengths)
    owner = np.repeat(np.arange(len(size)), size)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size) + first[owner]
    space = np.maximum(room, 0.0) * lengths
    taken = (seconds / np.bincount(owner, lengths[step]))[owner] * lengths[step]
    for _ in range(ROUNDS):
        total = np.bincount(step, taken, steps)
        if (total <= space + CLOSE * lengths).all():
            break
        taken = _pushed(_given_way(taken, owner, step, space), owner, step, space)
    where = kind[owner] * steps + step
    sums = np.bincount(where, taken, len(COMMUNICATION) * steps).reshape(-1, steps)
    return np.asarray(sums / lengths, np.float64)


def _given_way(taken: Floats, owner: Ints, step: Ints, space: Floats) -> Floats:
    """Where steps are too full, operations that find room in others go there as far as they do."""
    total = np.bincount(step, taken, len(space))
    free, excess = np.maximum(space - total, 0.0)[step], np.maximum(total - space, 0.0)
    room = np.bincount(owner, free)
    crowded = np.where(excess[step] > 0, taken, 0.0)
    able = crowded * np.minimum(1.0, room / np.maximum(np.bincount(owner, crowded), TINY))[owner]
    goes = able * np.minimum(1.0, excess / np.maximum(np.bincount(step, able, len(space)), TINY))[step]
    return np.asarray(taken - goes + (np.bincount(owner, goes) / np.maximum(room, TINY))[owner] * free, np.float64)


def _pushed(taken: Floats, owner: Ints, step: Ints, space: Floats) -> Floats:
    """Where steps are still too full, all that is in them goes to other steps of its operation, which push others."""
    total = np.bincount(step, taken, len(space))
    left = taken * np.minimum(1.0, space / np.maximum(total, TINY))[step]
    rest = np.bincount(owner, taken - left)
    return np.asarray(left + (rest / np.maximum(np.bincount(owner, left), TINY))[owner] * left, np.float64)
