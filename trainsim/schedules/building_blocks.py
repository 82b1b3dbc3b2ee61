"""
Schedules made of one building block that repeats: a V placement with as much memory as the block is long.

Every microbatch makes the same passes, CYCLE slots after the one before. Then passes move to earlier free slots, as far
as no rank ever holds more than the repeated block did, and weight gradients fill what is left
(Qi et al., 2024, Pipeline Parallelism with Controllable Memory, arXiv 2405.15362; sail-sg zbv_greedy.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from trainsim.schedules import Slot, Work

CYCLE = 6
"""Slots that a microbatch takes on a rank: three passes of two chunks."""
PASSES = (Slot(Work.F, 0, 0), Slot(Work.F, 0, 1), Slot(Work.I, 0, 1), Slot(Work.I, 0, 0))
"""The passes of a microbatch on a rank, in order. Forwards go down in chunk 0 and up in chunk 1; backwards down in
chunk 1 and up in chunk 0."""
WEIGHTS = (Slot(Work.W, 0, 1), Slot(Work.W, 0, 0))
WEIGHT = 4

Block = tuple[tuple[int, int, int, int], ...]
"""For each rank, the slots of the passes of the first microbatch."""
Times = list[list[int]]
"""For each pass of one rank, the slots of its microbatches."""


def repeated(block: Block, microbatches: int) -> tuple[tuple[Slot, ...], ...]:
    """The rows of *block*, repeated for every microbatch and pushed together."""
    return _rows(block, microbatches)


@lru_cache(maxsize=32)
def _rows(block: Block, microbatches: int) -> tuple[tuple[Slot, ...], ...]:
    ranks = [[list(range(first, first + CYCLE * microbatches, CYCLE)) for first in passes] for passes in block]
    with_weights = [[*times, _weights(times)[0]] for times in ranks]
    squeezed = _executed(_pulled(with_weights))
    drained = _pulled([times[:WEIGHT] for times in squeezed])
    last = _executed([[*times, _weights(times)[0]] for times in drained])
    return tuple(tuple(_row(times[:WEIGHT])) for times in last)


def _row(times: Times) -> Iterator[Slot]:
    slots = zip((*PASSES, *WEIGHTS), (*times, *_weights(times, apart=True)), strict=True)
    placed = [(at, k, slot) for slot, when in slots for k, at in enumerate(when)]
    return (slot._replace(microbatch=k) for _, k, slot in sorted(placed))


def _weights(times: Sequence[Sequence[int]], apart: bool = False) -> tuple[list[int], list[int]]:
    """Slots of the weight gradients: the first free ones; those of the two chunks *apart*, chunk 1 first."""
    occupied = {at: k for k, when in enumerate(times) for at in when}
    slots: tuple[list[int], list[int]] = ([], [])
    waiting = [0, 0]
    at = -1
    for at in range(max(occupied) + 1):
        if at not in occupied:
            which = 0 if waiting[0] else 1
            if waiting[which]:
                slots[which].append(at)
                waiting[which] -= 1
        elif occupied[at] >= 2:
            waiting[occupied[at] - 2 if apart else 0] += 1
    for which in (0, 1):
        slots[which].extend(range(at + 1, at + 1 + waiting[which]))
        at += waiting[which]
    return slots


def _in_order(ranks: Sequence[Times]) -> list[tuple[int, int, int, int]]:
    """(Slot, rank, pass, microbatch) of everything, by slot."""
    return sorted(
        (at, rank, k, microbatch)
        for rank, times in enumerate(ranks)
        for k, when in enumerate(times)
        for microbatch, at in enumerate(when)
    )


def _needs(ranks: int, rank: int, k: int, microbatch: int) -> Iterator[tuple[int, int, int]]:
    """(Rank, pass, microbatch) of what has to come before a pass; not for weight gradients."""
    other = rank - 1 if k in (0, 2) else rank + 1
    if 0 <= other < ranks:
        yield other, k, microbatch
    if k > 0:
        yield rank, k - 1, microbatch


def _executed(ranks: Sequence[Times]) -> list[Times]:
    """The first slots in which everything can be carried out, in the same order on every rank."""
    free = [0] * len(ranks)
    moments = [[list(when) for when in times] for times in ranks]
    for _, rank, k, microbatch in _in_order(ranks):
        needs = _needs(len(ranks), rank, k, microbatch) if k < WEIGHT else ()
        at = max([free[rank], *(1 + moments[r][n][b] for r, n, b in needs)])
        moments[rank][k][microbatch] = at
        free[rank] = at + 1
    return moments


def _pulled(ranks: Sequence[Times]) -> list[Times]:
    """Everything in the first free slot that its inputs and the memory allow.

    With weight gradients that is done in the warm-up and the cool-down, without them in the cool-down alone, where
    weight gradients are taken to fill every free slot.
    """
    weights = len(ranks[0]) > WEIGHT
    memories = [_WithWeights(times) if weights else _FilledTimes(times) for times in ranks]
    limit = max(memory.peak() for memory in memories)
    moments = [[list(when) for when in times] for times in ranks]
    taken: list[set[int]] = [set() for _ in ranks]
    steady = _Steady(len(moments[0][0]))
    for at, rank, k, microbatch in _in_order(ranks):
        moved = at
        if steady.over(rank, k, microbatch) or (weights and not steady.begun):
            first = 1 + _after(moments, rank, k, microbatch)
            free = (slot for slot in range(first, at) if slot not in taken[rank])
            moved = memories[rank].move(k, at, free, limit)
        moments[rank][k][microbatch] = moved
        taken[rank].add(moved)
    return moments


class _Steady:
    """The part of the order that stays: from the first microbatch that is through to the last one that begins."""

    def __init__(self, microbatches: int):
        self.microbatches, self.begun, self.ended = microbatches, False, False

    def over(self, rank: int, k: int, microbatch: int) -> bool:
        """Whether a pass comes after that part."""
        if self.ended:
            return True
        self.begun = self.begun or (k == WEIGHT - 1 and rank == 0)
        self.ended = self.begun and k == 0 and microbatch == self.microbatches - 1
        return False


def _after(ranks: Sequence[Times], rank: int, k: int, microbatch: int) -> int:
    """The slot after which a pass may come; -1: any."""
    times = ranks[rank]
    if k == WEIGHT:
        after = sorted(times[2] + times[3])[microbatch]
    else:
        after = max((ranks[r][n][b] for r, n, b in _needs(len(ranks), rank, k, microbatch)), default=-1)
    return max(after, times[k][microbatch - 1]) if microbatch else after


class _WithWeights:
    """Chunks that a rank holds after every slot, from forwards to weight gradients."""

    def __init__(self, times: Times):
        self.held = [0] * (max(when[-1] for when in times) + 1)
        for when in times[:2]:
            for at in when:
                self.held[at] += 1
        for at in times[WEIGHT]:
            self.held[at] -= 1
        for at in range(1, len(self.held)):
            self.held[at] += self.held[at - 1]

    def peak(self) -> int:
        return max(self.held)

    def move(self, k: int, at: int, free: Iterator[int], limit: int) -> int:
        """The first of the *free* slots that a pass at slot *at* can go to without more than *limit* held, or *at*."""
        change = {0: 1, 1: 1, WEIGHT: -1}.get(k, 0)
        first = at
        while change > 0 and first > 0 and self.held[first - 1] < limit:
            first -= 1
        to = next((slot for slot in free if change <= 0 or slot >= first), at)
        for slot in range(to, at):
            self.held[slot] += change
        return to


class _FilledTimes:
    """The same where weight gradients fill every slot that is free."""

    def __init__(self, times: Times):
        self.passes = {at: k for k, when in enumerate(times) for at in when}

    def peak(self) -> int:
        held = most = waiting = 0
        for at in range(max(self.passes) + 1):
            k = self.passes.get(at)
            if k is None:
                held -= 1 if waiting else 0
                waiting -= 1 if waiting else 0
            elif k < 2:
                held += 1
                most = max(most, held)
            else:
                waiting += 1
        return most

    def move(self, k: int, at: int, free: Iterator[int], limit: int) -> int:
        """As above."""
        for slot in free:
            del self.passes[at]
            self.passes[slot] = k
            if self.peak() <= limit:
                return slot
            del self.passes[slot]
            self.passes[at] = k
        return at
