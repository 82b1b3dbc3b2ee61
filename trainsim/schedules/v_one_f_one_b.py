"""1F1B-V: whole backwards in a V, with three quarters of the activation memory of 1F1B (arXiv 2405.15362)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, count

from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import two_chunks
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.traits import Traits

CYCLE = 6
"""Slots that a microbatch takes on a rank: two forwards of one, two backwards of two."""
PASSES = (Slot(Work.F, 0, 0), Slot(Work.F, 0, 1), Slot(Work.B, 0, 1), Slot(Work.B, 0, 0))


@schedules.register(
    "1f1b-v",
    "1F1B-V",
    "v1f1b",
    "enable-1f1b-v",
    traits=Traits(placement=StagePlacement.V, chunks=2, needs="2 chunks", source="arXiv 2405.15362; sail-sg v1f1b.py"),
    check=two_chunks,
)
def one_f_one_b_v(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None
) -> Iterator[Slot]:
    """A block of six slots per microbatch that repeats, then passes moved forward as far as the memory allows.

    >>> print(*one_f_one_b_v(0, 1, microbatches=2))
    F0 F0.1 B0.1 B0 F1 F1.1 B1.1 B1
    """
    return iter(_rows(ranks, microbatches)[rank])


def _block(ranks: int) -> list[tuple[int, int, int, int]]:
    """For each rank the slots of the first microbatch's passes; none of a rank is a whole cycle after another."""
    forward, turn, gap = range(ranks), range(2 * ranks - 1, ranks - 1, -1), 3 * (ranks % 3 == 0)
    at, spare = 2 * ranks + gap, (3 - (ranks + 2) % 3) % 3
    back: list[int] = []
    for _ in range(2 * ranks):
        back.append(at)
        spare, at = spare + 1, at + 2
        if spare == 3:
            spare, at = 0, at + 3
    return list(zip(forward, turn, back[:ranks], reversed(back[ranks:]), strict=True))


@lru_cache(maxsize=32)
def _rows(ranks: int, microbatches: int) -> tuple[tuple[Slot, ...], ...]:
    plan = _MirroredPlan(_block(ranks), microbatches)
    plan.pull()
    rows = []
    for times in plan.times:
        placed = [(at, k, slot) for slot, when in zip(PASSES, times, strict=True) for k, at in enumerate(when)]
        rows.append(tuple(slot._replace(microbatch=k) for _, k, slot in sorted(placed)))
    return tuple(rows)


class _MirroredPlan:
    """Slots of every pass, which slots are taken, and the chunks held after every slot. Backwards take two slots."""

    def __init__(self, block: list[tuple[int, int, int, int]], microbatches: int):
        self.times = [[[first + CYCLE * k for k in range(microbatches)] for first in passes] for passes in block]
        self.taken: list[set[int]] = []
        self.held: list[list[int]] = []
        length = 2 + max(when[-1] for times in self.times for when in times)
        for times in self.times:
            self.taken.append({at for when in times for at in when} | {at + 1 for when in times[2:] for at in when})
            change = [0] * length
            for k, when in enumerate(times):
                for at in when:
                    change[at if k < 2 else at + 1] += 1 if k < 2 else -1
            self.held.append(list(accumulate(change)))
        self.limit = max(map(max, self.held))

    def pull(self) -> None:
        """Every pass, by slot and then by rank, to the first place that its inputs and the memory allow."""
        order = sorted(
            (at, rank, k, microbatch)
            for rank, times in enumerate(self.times)
            for k, when in enumerate(times)
            for microbatch, at in enumerate(when)
        )
        for at, rank, k, microbatch in order:
            first = self._after(rank, k, microbatch)
            to = self._forward_place(rank, first, at) if k < 2 else self._backward_place(rank, first, at)
            self._move(rank, k, microbatch, to)

    def _after(self, rank: int, k: int, microbatch: int) -> int:
        """The first slot after everything that the pass needs."""
        last = [self.times[rank][k][microbatch - 1] + k // 2] if microbatch else []
        other = rank - 1 if k in (0, 2) else rank + 1
        if 0 <= other < len(self.times):
            last.append(self.times[other][k][microbatch] + k // 2)
        elif k > 0:
            last.append(self.times[rank][k - 1][microbatch] + (k - 1) // 2)
        return 1 + max(last, default=-1)

    def _forward_place(self, rank: int, first: int, at: int) -> int:
        """The first free slot from which on there is room in memory."""
        first = next(slot for slot in count(first) if slot not in self.taken[rank] or slot >= at)
        begin = at
        while begin > first and self.held[rank][begin - 1] < self.limit:
            begin -= 1
        return next(slot for slot in count(begin) if slot not in self.taken[rank] or slot >= at)

    def _backward_place(self, rank: int, first: int, at: int) -> int:
        """The first two free slots."""
        taken = self.taken[rank]
        return next(slot for slot in count(first) if slot >= at or (slot not in taken and slot + 1 not in taken))

    def _move(self, rank: int, k: int, microbatch: int, to: int) -> None:
        at = self.times[rank][k][microbatch]
        self.times[rank][k][microbatch] = to
        for slot in (0,) if k < 2 else (0, 1):
            self.taken[rank].remove(at + slot)
            self.taken[rank].add(to + slot)
        end = k // 2
        for slot in range(to + end, at + end):
            self.held[rank][slot] += 1 if k < 2 else -1
