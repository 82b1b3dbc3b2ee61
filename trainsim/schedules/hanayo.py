"""Hanayo: stages laid over the ranks in waves (Liu et al., 2023, SC '23, arXiv 2308.15762)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trainsim.errors import InvalidPlan
from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import Numbers, no_group
from trainsim.schedules.placement import StagePlacement, place_of
from trainsim.schedules.traits import Traits

FORWARD, BACKWARD = 1, 2
"""Times by which passes are ordered."""


def _check(numbers: Numbers) -> None:
    no_group(numbers)
    if numbers.chunks % 2:
        raise InvalidPlan(
            f"hanayo lays 2 chunks per wave on a rank, not {numbers.chunks}; {numbers.chunks + 1} would work."
        )


@schedules.register(
    "hanayo",
    "Hanayo",
    traits=Traits(
        placement=StagePlacement.WAVE,
        chunks=None,
        needs="2 chunks per wave; made for as many microbatches as ranks",
        source="arXiv 2308.15762",
    ),
    check=_check,
)
def hanayo(rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None) -> Iterator[Slot]:
    """Every rank takes what is ready: backwards first, then the deepest forward; at most *ranks* microbatches at once.

    ``chunks`` is twice the number of waves. The paper gives no rule for the order; this greedy one, with backwards
    twice as long as forwards, has the paper's bubble with one wave.

    >>> print(*hanayo(0, 2, microbatches=2))
    F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1
    """
    return iter(_greedy(ranks, microbatches, chunks)[rank])


@lru_cache(maxsize=8)
def _greedy(ranks: int, microbatches: int, chunks: int) -> tuple[tuple[Slot, ...], ...]:
    rows: list[list[Slot]] = [[] for _ in range(ranks)]
    ready: list[dict[Slot, int]] = [{} for _ in range(ranks)]  # since when
    free = [0] * ranks
    ready[0] = {Slot(Work.F, k): 0 for k in range(min(ranks, microbatches))}
    admitted, now = len(ready[0]), 0
    while any(ready):
        for rank in range(ranks):
            waiting = [slot for slot, since in ready[rank].items() if since <= now]
            if free[rank] > now or not waiting:
                continue
            slot = min(waiting, key=lambda s: _urgency(s, chunks))
            del ready[rank][slot]
            rows[rank].append(slot)
            free[rank] = now + (FORWARD if slot.work is Work.F else BACKWARD)
            following = _next(slot, rank, ranks, chunks)
            if following is None and admitted < microbatches:
                following = 0, Slot(Work.F, admitted)
                admitted += 1
            if following is not None:
                ready[following[0]][following[1]] = free[rank]
        now += 1
    return tuple(map(tuple, rows))


def _urgency(slot: Slot, chunks: int) -> tuple[int, int, int]:
    if slot.work is Work.B:
        return 0, slot.microbatch, slot.chunk
    return 1, -slot.chunk, slot.microbatch


def _next(slot: Slot, rank: int, ranks: int, chunks: int) -> tuple[int, Slot] | None:
    """(Rank, slot) that follows; None after the last backward of a microbatch."""
    stage = slot.chunk * ranks + (ranks - 1 - rank if slot.chunk % 2 else rank)
    work = slot.work
    if work is Work.F and stage == ranks * chunks - 1:
        work = Work.B
    else:
        stage += 1 if work is Work.F else -1
    if stage < 0:
        return None
    to, chunk = place_of(StagePlacement.WAVE, stage, ranks)
    return to, Slot(work, slot.microbatch, chunk)
