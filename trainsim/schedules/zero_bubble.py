"""
The plan of zero-bubble schedules with one chunk per rank: weight gradients go where a rank would wait.

A rank may hold *limit* microbatches. Forwards fill the time to the first backward, then forwards and backwards take
turns; which of eight variants idles least is found by trying (Qi et al., 2023, arXiv 2401.10241, section 3.1).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from trainsim.schedules import Slot, Work
from trainsim.schedules.costs import USUAL, Costs

F, I, W = 0, 1, 2  # noqa: E741
WORKS = (Work.F, Work.I, Work.W)


@lru_cache(maxsize=64)
def plan(ranks: int, microbatches: int, limit: int, costs: Costs = USUAL) -> tuple[tuple[Slot, ...], ...]:
    """The rows of the variant whose busiest rank takes the least time from its first pass to its last.

    >>> print(*plan(2, 3, limit=2)[1])
    F0 I0 F1 I1 W0 F2 I2 W1 W2
    """
    tried = [
        _ZeroBubblePlan(ranks, microbatches, limit, costs, *variant) for variant in product((True, False), repeat=3)
    ]
    return min(tried, key=lambda plan: plan.longest).slots


class _ZeroBubblePlan:
    """One variant, laid out.

    ``early_bubble``: the first backward need not come as early as it can. ``backward_first``: a forward that would
    hold up the next rank's backward is left for later. ``fill``: weight gradients may also fill waits that cost no
    time because another rank waits longer.
    """

    def __init__(
        self,
        ranks: int,
        microbatches: int,
        limit: int,
        costs: Costs,
        early_bubble: bool,
        backward_first: bool,
        fill: bool,
    ):
        self.ranks, self.microbatches, self.limit, self.costs = ranks, microbatches, limit, costs
        self.early_bubble, self.backward_first, self.fill = early_bubble, backward_first, fill
        self.rows: list[list[int]] = [[] for _ in range(ranks)]
        self.ends: tuple[list[list[int]], ...] = tuple([[] for _ in range(ranks)] for _ in WORKS)
        self.now = [0] * ranks
        self.held = [0] * ranks
        self.waited = [0] * ranks
        self._first_round()
        for k in range(1, microbatches):
            self._forwards()
            self._backwards(k)
        for rank in range(ranks):
            while self.done(W, rank) < microbatches:
                self.put(rank, W)
        self.longest = max(self.ends[W][r][-1] - self.ends[F][r][0] + costs.forward for r in range(ranks))

    @property
    def slots(self) -> tuple[tuple[Slot, ...], ...]:
        """The rows: microbatches are in order in every kind of pass."""
        of = [[Slot(work, microbatch) for microbatch in range(self.microbatches)] for work in WORKS]
        every = ([iter(slots) for slots in of] for _ in self.rows)
        return tuple(
            tuple([next(of_rank[work]) for work in row]) for row, of_rank in zip(self.rows, every, strict=True)
        )

    def done(self, work: int, rank: int) -> int:
        return len(self.ends[work][rank])

    def ready(self, rank: int, work: int) -> int | None:
        """When the input of the rank's next pass, forward or backward, is there; None where the rank needs none."""
        source = rank - 1 if work == F else rank + 1
        if not 0 <= source < self.ranks:
            return None
        ends = self.ends[work]
        return ends[source][len(ends[rank])] + self.costs.p2p

    def put(self, rank: int, work: int) -> None:
        """The rank's next pass of that kind."""
        begin = now = self.now[rank]
        if work != W:
            begin = max(now, self.ready(rank, work) or 0)
            if self.ends[F][rank]:
                self.waited[rank] += begin - now
            self.held[rank] += work == F
        else:
            self.held[rank] -= 1
        self.rows[rank].append(work)
        self.now[rank] = end = begin + self.costs[work]
        self.ends[work][rank].append(end)

    def _first_round(self) -> None:
        """One forward each, as many more as fit before the first backward, and that backward."""
        for rank in range(self.ranks):
            self.put(rank, F)
        more = self._forwards_ahead()
        for rank in range(1, self.ranks):
            while 0 < more[rank] >= more[rank - 1] and 1 + more[rank] < self.microbatches:
                more[rank] -= 1
        for rank in range(self.ranks):
            for _ in range(more[rank]):
                self.put(rank, F)
        for rank in reversed(range(self.ranks)):
            self.put(rank, I)

    def _forwards_ahead(self) -> list[int]:
        more = [0] * self.ranks
        costs = self.costs
        back = self.ends[F][-1][0] + costs.input_gradient
        for rank in reversed(range(self.ranks - 1)):
            now = self.now[rank]
            while 1 + more[rank] < self.microbatches and 1 + more[rank] < self.limit:
                late = now + costs.forward > back + costs.p2p if self.early_bubble else now >= back + costs.p2p
                if late:
                    break
                now += costs.forward
                more[rank] += 1
            back = max(now, back + costs.p2p) + costs.input_gradient
        return more

    def _forwards(self) -> None:
        """At most one more forward on every rank, and on no rank without one on the next."""
        left = [len(ends) < self.microbatches for ends in self.ends[F]]
        if not any(left):
            return
        wanted = [left[rank] and not self._waits(rank) for rank in range(self.ranks)]
        for rank in reversed(range(self.ranks - 1)):
            wanted[rank] = wanted[rank] and wanted[rank + 1]
        for rank in range(self.ranks):
            if wanted[rank]:
                self._make_room(rank)
                self._fill_wait(rank, F)
                self.put(rank, F)

    def _waits(self, rank: int) -> bool:
        """Whether the rank leaves its forward out, so that its backward is not late."""
        after = rank + 1
        if not self.backward_first or after == self.ranks or self.done(F, rank) < self.done(F, after) + 2:
            return False
        costs = self.costs
        back = self.now[after] + costs.forward + costs.input_gradient + costs.p2p
        if self.now[rank] >= back:
            return True
        over = self.held[rank] + 1 - self.limit
        first = min(max(over, 0), self.done(I, rank) - self.done(W, rank))
        if self.now[rank] + costs.forward + first * costs.weight_gradient <= back:
            return False
        return back - self.now[rank] <= max(self.waited) - self.waited[rank]

    def _make_room(self, rank: int) -> None:
        while self.held[rank] + 1 > self.limit and self.done(W, rank) < self.done(I, rank):
            self.put(rank, W)

    def _fill_wait(self, rank: int, work: int) -> None:
        """Weight gradients while the rank would wait for its next pass; the last may be longer than the wait."""
        ready = self.ready(rank, work)
        if ready is None:
            return
        while self._has_weight(rank) and self.now[rank] + self.costs.weight_gradient <= ready:
            self.put(rank, W)
        wait = ready - self.now[rank]
        if self._has_weight(rank) and wait > 0 and (self.fill or wait > max(self.waited) - self.waited[rank]):
            self.put(rank, W)

    def _has_weight(self, rank: int) -> bool:
        return len(self.ends[W][rank]) < len(self.ends[I][rank])

    def _backwards(self, k: int) -> None:
        for rank in reversed(range(self.ranks)):
            self._fill_wait(rank, I)
            if rank == 0 and self.done(F, 0) == self.microbatches:
                while self._has_weight(0):
                    self.put(0, W)
            self.put(rank, I)
