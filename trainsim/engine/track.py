"""The tasks of a chain as columns, to see where they repeat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trainsim.contracts.record import Ints
from trainsim.engine.chain import Chain
from trainsim.engine.course import Operations
from trainsim.engine.flags import Flags

MANY = 64
"""Microbatches of a chain that is worth being watched: before, it has hardly begun to repeat."""
OFTEN = 8
"""How often a chain carries out what may be steady."""


class Track:
    """``operations`` has each kind of task once, ``kind`` numbers them task by task; ``often`` says of a kind whether
    its tasks may be steady: none is about a microbatch that it names. ``flags`` are those that each kind is about."""

    def __init__(self, chain: Chain):
        self.chain = chain
        self.operations: Sequence[Operations] = chain.tasks.kinds
        self.kind, self.microbatch = chain.tasks.kind, chain.tasks.microbatch
        self.times = np.bincount(self.kind, minlength=len(self.operations))
        reaches = [[operation.reach() for operation in kind] for kind in self.operations]
        self.flags = [{flags for reach in kind for flags in reach.flags} for kind in reaches]
        named = [any(reach.named for reach in kind) for kind in reaches]
        self.often = (self.times >= OFTEN) & ~np.array(named, bool)

    def candidates(self) -> list[int]:
        """Tasks at which to look whether everything is as it was: those of the commonest kind and, where there are none
        for long, those of the next."""
        chosen = np.zeros(0, np.int64)
        for kind in np.argsort(-self.times, kind="stable")[: int(self.often.sum())]:
            at = np.flatnonzero(self.kind == kind)
            bounds = np.concatenate([[-len(self.kind)], chosen, [2 * len(self.kind)]])
            behind = np.searchsorted(bounds, at)
            near = np.minimum(bounds[behind] - at, at - bounds[behind - 1])
            chosen = np.sort(np.concatenate([chosen, at[near > 4 * len(self.kind) / len(at)]]))
        return [int(at) for at in chosen]

    def repeats(self, first: int, period: int, microbatches: int) -> int:
        """How often the *period* tasks from *first* on, and the one behind them, come again, each time so many
        microbatches further.

        >>> from trainsim.engine.clock import Clock
        >>> from trainsim.engine.running_operations import Unshared
        >>> chain = Chain(0, 0, "compute")
        >>> f, b, z = ((Unshared(Clock(), run, 1.0),) for run in range(3))
        >>> from trainsim.engine.course import Course
        >>> chain.tasks = Course.of([(f, 0), (f, 1), (b, 0), (f, 2), (b, 1), (f, 3), (b, 2), (f, 4), (z, -1)])
        >>> Track(chain).repeats(1, 2, 1)
        2
        """
        kind, microbatch = self.kind[first:], self.microbatch[first:]
        same = (kind[period:] == kind[:-period]) & (microbatch[period:] - microbatch[:-period] == microbatches)
        alike = len(same) if same.all() else int(same.argmin())
        return max(0, (alike - 1) // period)

    def touched(self, first: int, last: int) -> Iterator[tuple[Flags, Ints]]:
        """Flags that tasks *first* to *last* are about, and for which microbatches."""
        kind, microbatch = self.kind[first : last + 1], self.microbatch[first : last + 1]
        for k in np.unique(kind).tolist():
            some = np.unique(microbatch[kind == k])
            yield from ((flags, some) for flags in self.flags[k])

    def steady(self, first: int, last: int) -> bool:
        """Whether all tasks from *first* to *last* may be."""
        return bool(self.often[self.kind[first : last + 1]].all())
