"""Interleaved zero bubble: several chunks per rank, and weight gradients that fill bubbles (PyTorch)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.errors import InvalidPlan
from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import Numbers, no_group
from trainsim.schedules.sequences import backwards, forwards, paired, postponed
from trainsim.schedules.traits import Traits


def _check(numbers: Numbers) -> None:
    ranks, microbatches = numbers.ranks, numbers.microbatches
    no_group(numbers)
    rounds = _rounds(ranks, microbatches)
    if microbatches % rounds:
        near = [m for m in range(1, 2 * microbatches + ranks) if m % _rounds(ranks, m) == 0]
        less = max(m for m in near if m < microbatches)
        more = min(m for m in near if m > microbatches)
        raise InvalidPlan(
            f"interleaved-zb goes through {microbatches} microbatches on {ranks} stages in {rounds} rounds, which do "
            f"not divide them; {less} or {more} microbatches would work."
        )


@schedules.register(
    "interleaved-zb",
    "InterleavedZeroBubble",
    "ScheduleInterleavedZeroBubble",
    "interleaved_zb",
    "interleaved-zero-bubble",
    traits=Traits(
        chunks=None,
        split=True,
        needs="microbatches a multiple of the rounds, max(1, microbatches // ranks)",
        source="PyTorch ScheduleInterleavedZeroBubble; arXiv 2401.10241",
    ),
    check=_check,
)
def interleaved_zb(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """Interleaved with a warm-up of one forward per following rank and backwards split as in ZB-H1.

    >>> print(*interleaved_zb(1, 2, microbatches=2, chunks=2))
    F0 F1 F0.1 I0.1 F1.1 I1.1 W0.1 I0 W1.1 I1 W0 W1
    """
    size = microbatches // _rounds(ranks, microbatches)
    ahead = forwards(microbatches, chunks, size)
    warmup = ranks - 1 - rank + (chunks - 1) * size
    return postponed(paired(ahead, backwards(ahead, chunks), warmup), backwards=rank)


def _rounds(ranks: int, microbatches: int) -> int:
    return max(1, microbatches // ranks)
