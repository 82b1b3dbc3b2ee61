"""GIS, PipeOffload's grouped interleaved schedule, with less in flight (Wan et al., 2025, arXiv 2503.01328)."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from trainsim.errors import InvalidPlan
from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import Numbers
from trainsim.schedules.traits import Traits

CYCLE = 3
"""Slots that a microbatch takes on a chunk: forward, input gradient, weight gradient."""


def _check(numbers: Numbers) -> None:
    ranks, chunks, group = numbers.ranks, numbers.chunks, numbers.group
    if chunks == 1:
        raise InvalidPlan("gis needs 2 or more chunks per rank, not 1; with chunks: 1 use 1f1b-split.")
    if group is not None and group > ranks:
        raise InvalidPlan(f"gis takes groups of up to as many microbatches as ranks, not {group}; 1 to {ranks} work.")


@schedules.register(
    "gis",
    "GIS",
    "pipeoffload",
    "PipeOffload",
    "interleave-group-size",
    traits=Traits(chunks=None, split=True, grouped=True, needs="2 or more chunks", source="arXiv 2503.01328; sail-sg"),
    check=_check,
)
def gis(rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None) -> Iterator[Slot]:
    """Groups of ``group`` microbatches (by default as many as ranks) go through the chunks in a pattern that repeats.

    Groups follow each other through a chunk until half of the ranks are busy with it; the gradient goes back two slots
    per rank, right after the first forward through the last stage. Smaller groups hold less and idle more; ``ranks``
    idle least.

    >>> print(*gis(1, 2, microbatches=2, chunks=2, group=2))
    F0 F1 F0.1 I0.1 W0.1 F1.1 I1.1 W1.1 I0 W0 I1 W1
    """
    size = group or ranks
    slots = [
        (base + repeat * CYCLE * size * chunks, index + repeat * size, work, chunk)
        for work, chunk, base, index in _pattern(rank, ranks, chunks, size)
        for repeat in range(-(-microbatches // size))
    ]
    return (Slot(work, index, chunk) for _, index, work, chunk in sorted(slots) if index < microbatches)


def _pattern(rank: int, ranks: int, chunks: int, size: int) -> Iterator[tuple[Work, int, int, int]]:
    """(Work, chunk, slot, microbatch) of the first group; a weight gradient follows its input gradient."""
    together = -(-((ranks + 1) // 2) // size)
    whole = chunks // gcd(chunks, together)

    def begin(turn: int) -> int:
        """First slot of the chunk that comes *turn*-th, counted from the first one's."""
        return CYCLE * size * (together * turn + turn // whole)

    after = ranks - 1 - rank
    back = begin(chunks - 1) + rank + 1 + 3 * after  # a slot per rank forward, two back
    for turn in range(chunks):
        for index in range(size):
            yield Work.F, turn, begin(turn) + CYCLE * index + rank, index
            slot = back + begin(turn) + CYCLE * index
            yield Work.I, chunks - 1 - turn, slot, index
            yield Work.W, chunks - 1 - turn, slot + 1, index
