"""ZB-V as its authors plan it: from measured times, waits filled with weight gradients (arXiv 2405.15362)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import two_chunks
from trainsim.schedules.costs import Costs, costs_of
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.traits import Traits

F, I, W = 0, 1, 2  # noqa: E741
WORKS = (Work.F, Work.I, Work.W)
HELD = (194, -162, -32)
"""Activation bytes of a chunk that F takes and I and W give back, over the hidden size: in all 34 + 5 * 32, where 32 is
heads * sequence / hidden, of which W needs 32 (sail-sg's memory model; Korthikanti et al., arXiv 2205.05198)."""


@schedules.register(
    "zb-v-greedy",
    traits=Traits(
        placement=StagePlacement.V,
        chunks=2,
        split=True,
        planned=True,
        needs="2 chunks",
        source="arXiv 2405.15362; sail-sg/zero-bubble-pipeline-parallelism, zbv.py",
    ),
    check=two_chunks,
)
def zb_v_greedy(
    rank: int,
    ranks: int,
    *,
    microbatches: int,
    chunks: int = 2,
    group: int | None = None,
    costs: Sequence[float] | None = None,
) -> Iterator[Slot]:
    """The activations of ``2 * ranks`` chunks, planned for *costs* (F, I, W and message; None: 1, 1, 1 and 0.001).

    >>> print(*zb_v_greedy(0, 1, microbatches=2))
    F0 F0.1 I0.1 W0.1 F1 I0 W0 F1.1 I1.1 I1 W1.1 W1
    """
    return iter(_best(ranks, microbatches, costs_of(costs))[rank])


@lru_cache(maxsize=32)
def _best(ranks: int, microbatches: int, costs: Costs) -> tuple[tuple[Slot, ...], ...]:
    """The variant whose longest wait of a rank is least."""
    plans = (_planned(ranks, microbatches, costs, *fill) for fill in product((True, False), repeat=2))
    return tuple(map(tuple, min(plans, key=lambda plan: plan.longest).rows))


def _planned(ranks: int, microbatches: int, costs: Costs, fill_backward: bool, fill_forward: bool) -> _GreedyPlan:
    """A plan, made again as long as that helps: ranks that waited less than the worst may wait so much longer."""
    plan = _GreedyPlan(ranks, microbatches, costs, fill_backward, fill_forward, None)
    while True:
        again = _GreedyPlan(ranks, microbatches, costs, fill_backward, fill_forward, plan.waited)
        if again.longest >= plan.longest:
            return plan
        plan = again


class _GreedyPlan:
    """One variant, laid out. Phases are 0: F of chunk 0, 1: F of chunk 1, 2: I of chunk 1, 3: I of chunk 0.

    Forwards go down the ranks in chunk 0 and up in chunk 1, backwards down in chunk 1 and up in chunk 0.
    """

    def __init__(
        self,
        ranks: int,
        microbatches: int,
        costs: Costs,
        fill_backward: bool,
        fill_forward: bool,
        before: list[int] | None,
    ):
        self.ranks, self.microbatches, self.costs = ranks, microbatches, costs
        self.fill_backward, self.fill_forward = fill_backward, fill_forward
        self.allowance = [max(before) - waited for waited in before] if before else [0] * ranks
        self.limit = 2 * ranks * HELD[F]
        self.rows: list[list[Slot]] = [[] for _ in range(ranks)]
        self.ends: list[list[list[int]]] = [[[] for _ in range(ranks)] for _ in range(4)]
        self.weights: list[deque[tuple[int, int]]] = [deque() for _ in range(ranks)]
        self.now, self.held, self.waited = [0] * ranks, [0] * ranks, [0] * ranks
        self._fill()
        for _ in range(2 * microbatches):
            self._backwards()
            self._forwards()
        for rank in range(ranks):
            while self.weights[rank]:
                self.put_weight(rank)
        self.longest = max(self.waited)

    def done(self, phase: int, rank: int) -> int:
        return len(self.ends[phase][rank])

    def source(self, phase: int, rank: int) -> int | None:
        """The other rank that the phase's input comes from."""
        source = rank - 1 if phase in (0, 2) else rank + 1
        return source if 0 <= source < self.ranks else None

    def arrival(self, phase: int, rank: int) -> int | None:
        """When the input of the next pass of *phase* is there, from another rank; None where it is from none."""
        source = self.source(phase, rank)
        return None if source is None else self.ends[phase][source][self.done(phase, rank)] + self.costs.p2p

    def put(self, phase: int, rank: int) -> None:
        begin = max(self.now[rank], self.arrival(phase, rank) or 0)
        if self.done(0, rank):
            self.waited[rank] += begin - self.now[rank]
        work, chunk = (F, phase) if phase < 2 else (I, 3 - phase)
        microbatch = self.done(phase, rank)
        self._carry_out(rank, work, microbatch, chunk, begin)
        self.ends[phase][rank].append(self.now[rank])
        if work == I:
            self.weights[rank].append((microbatch, chunk))

    def put_weight(self, rank: int) -> None:
        microbatch, chunk = self.weights[rank].popleft()
        self._carry_out(rank, W, microbatch, chunk, self.now[rank])

    def _carry_out(self, rank: int, work: int, microbatch: int, chunk: int, begin: int) -> None:
        self.rows[rank].append(Slot(WORKS[work], microbatch, chunk))
        self.now[rank] = begin + self.costs.whole(work)
        self.held[rank] += HELD[work]

    def _fill(self) -> None:
        """Forwards before the first backward: as many as there is time and room for, in turn on both chunks."""
        ranks = self.ranks
        for rank in range(ranks):
            self.put(0, rank)
        for rank in reversed(range(ranks)):
            if rank < ranks - 1:
                back = self.ends[1][rank + 1][0] + self.costs.p2p
                while (
                    self.held[rank] + HELD[F] * (2 + 2 * rank) <= self.limit
                    and self.now[rank] + self.costs.forward <= back
                    and self.done(0, rank) < self.microbatches
                ):
                    for before in range(rank + 1):
                        self.put(0, before)
            self.put(1, rank)
        chunk = 0
        for rank in range(1, ranks):
            while self._behind(rank):
                for other in reversed(range(rank, ranks)):
                    if self.done(chunk, other) < self.microbatches:
                        self.put(chunk, other)
                chunk = 1 - chunk

    def _behind(self, rank: int) -> bool:
        """Whether the rank has done fewer forwards than the one before, or has not done more of chunk 1."""
        own, before = (self.done(0, r) + self.done(1, r) for r in (rank, rank - 1))
        return own < before or self.done(1, rank) <= self.done(1, rank - 1) < self.microbatches

    def _backwards(self) -> None:
        """One on every rank: first those of chunk 0, which go up the ranks, then those of chunk 1, which go down."""
        for rank in range(self.ranks):
            while self.held[rank] + HELD[I] > self.limit:
                self.put_weight(rank)
        up = [rank for rank in range(self.ranks) if self._goes_up(rank)]
        down = [rank for rank in range(self.ranks) if rank not in up]
        for phase, rank in [(3, rank) for rank in reversed(up)] + [(2, rank) for rank in down]:
            self._fill_wait(phase, rank, phase == 3 or self.fill_backward)
            self.put(phase, rank)

    def _goes_up(self, rank: int) -> bool:
        """Whether the rank's next backward is of chunk 0, which goes up the ranks."""
        if self.done(3, rank) >= self.done(2, rank):
            return False
        arrived = rank == self.ranks - 1 or self.done(3, rank + 1) > self.done(3, rank)
        return arrived or self.done(2, rank) >= self.microbatches

    def _forwards(self) -> None:
        """At most one on every rank: of chunk 1 if its input is there, else of chunk 0."""
        for rank in range(self.ranks):
            phase = self._next_forward(rank)
            if phase is None:
                continue
            while self.held[rank] + HELD[F] > self.limit:
                self.put_weight(rank)
            self._fill_wait(phase, rank, self.fill_forward)
            self.put(phase, rank)

    def _next_forward(self, rank: int) -> int | None:
        if self.done(1, rank) >= self.microbatches:
            return None
        if self.done(1, rank) >= self.done(0, rank):
            return 0
        if rank == self.ranks - 1 or self.done(1, rank + 1) > self.done(1, rank):
            return 1
        if self.done(0, rank) < self.microbatches and (rank == 0 or self.done(0, rank - 1) > self.done(0, rank)):
            return 0
        return None

    def _fill_wait(self, phase: int, rank: int, may_fill: bool) -> None:
        """Weight gradients while the rank would wait; one longer than the wait if the rank has waited enough."""
        arrival = self.arrival(phase, rank)
        if arrival is None:
            return
        while self.weights[rank] and self.now[rank] + self.costs.weight_gradient <= arrival:
            self.put_weight(rank)
        most = max(max(self.waited), self.allowance[rank]) - self.waited[rank]
        if self.weights[rank] and arrival - self.now[rank] > most and may_fill:
            self.put_weight(rank)
