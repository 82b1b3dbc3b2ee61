"""What let each span start, told from times alone: the end of another span at that very instant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainsim.contracts.record import COMPUTE
from trainsim.contracts.trace import Bools, Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """Spans as columns, chain by chain and in the order of each; ``first`` says which begin a chain, ``stage`` is that
    of each span's rank; chains called as ``carriers`` are carry messages."""

    rank: Ints
    stage: Ints
    chain: list[str]
    name: list[str]
    microbatch: Ints
    posted: Floats
    start: Floats
    end: Floats
    first: Bools
    carriers: frozenset[str] = frozenset()
    _ending: dict[float, list[int]] = field(default_factory=lambda: defaultdict(list))

    def causes(self) -> dict[int, int]:
        """Of each span that did not simply follow the one before it the span that let it start, where one is seen.

        * It was idle before: a message to it, or another chain of its rank, ended when it was posted.
        * It started later than posted: the last of its peers came, and what let that one come is the cause.
        * A message starts when its sender is so far.
        """
        for k, end in enumerate(self.end.tolist()):
            self._ending[end].append(k)
        before = np.where(self.first, 0.0, np.append(0.0, self.end[:-1]))
        message = np.array([chain in self.carriers for chain in self.chain], bool)
        waited = (self.posted > before) | message & (self.posted > 0)
        out = {k: cause for k in np.flatnonzero(waited).tolist() if (cause := self._woken_by(k)) is not None}
        late = np.flatnonzero(self.start > self.posted).tolist()
        return out | dict(self._last_peers(late, out))

    def _woken_by(self, k: int) -> int | None:
        """The span whose end ended the wait before span *k*."""
        own = self.chain[k], int(self.rank[k])
        ended = [j for j in self._ending.get(float(self.posted[k]), ()) if (self.chain[j], int(self.rank[j])) != own]
        return min(ended, key=lambda j: self._unlikely(j, k)) if ended else None

    def _unlikely(self, j: int, k: int) -> tuple[bool, ...]:
        """How unlikely span *j* is to have woken *k*: the least is the likeliest."""
        own, message = self.rank[j] == self.rank[k], self.chain[j] in self.carriers
        sends, computes = self.chain[k] in self.carriers, self.chain[k] == COMPUTE
        received = message and not own and not sends and bool(self.microbatch[j] == self.microbatch[k])
        neighbour = abs(int(self.stage[j]) - int(self.stage[k])) == 1
        if computes and received:
            return (False, not neighbour)
        return (True, not own, message, self.chain[j] != COMPUTE, not neighbour)

    def _last_peers(self, late: list[int], woken: dict[int, int]) -> Iterator[tuple[int, int]]:
        """Of each of the spans *late* what let the last of its peers come."""
        came: dict[tuple[str, int, float], list[int]] = defaultdict(list)
        for k in np.flatnonzero(self.start == self.posted).tolist():
            came[self.name[k], int(self.microbatch[k]), float(self.start[k])].append(k)
        for k in late:
            peers = came.get((self.name[k], int(self.microbatch[k]), float(self.start[k])), [])
            others = [j for j in peers if self.rank[j] != self.rank[k]]
            if others:
                last = min(others, key=lambda j: int(self.stage[j]) != int(self.stage[k]))
                cause = woken.get(last, last - 1)
                if cause >= 0 and (last in woken or not self.first[last]):
                    yield k, cause
