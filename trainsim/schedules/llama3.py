"""Llama 3's interleaved 1F1B, with any number of microbatches per group (Dubey et al., 2024, arXiv 2407.21783)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trainsim.errors import InvalidPlan
from trainsim.schedules import Slot, flat, schedules
from trainsim.schedules.check import Numbers
from trainsim.schedules.interleaved import usual_group
from trainsim.schedules.sequences import backwards, forwards, paired
from trainsim.schedules.traits import Traits
from trainsim.schedules.untimed import waits_for_ever


def _check(numbers: Numbers) -> None:
    ranks, microbatches, chunks, group = numbers.ranks, numbers.microbatches, numbers.chunks, numbers.group
    if chunks == 1:
        raise InvalidPlan("llama3 needs 2 or more chunks per rank, not 1; with chunks: 1 use 1f1b.")
    least = min(ranks, microbatches)
    if group is not None and not least <= group <= microbatches:
        raise InvalidPlan(
            f"llama3 on {ranks} stages with {microbatches} microbatches cannot take {group} of them at a time; "
            f"group: {least} to {microbatches} would work."
        )
    if group is not None and _stuck(ranks, microbatches, chunks, group):
        fits = [g for g in range(least, microbatches + 1) if not _stuck(ranks, microbatches, chunks, g)]
        raise InvalidPlan(
            f"llama3 waits for ever on {ranks} stages with {microbatches} microbatches in groups of {group}: "
            f"the last group is too short; group: {', '.join(map(str, fits[:6]))} would work."
        )


@schedules.register(
    "llama3",
    "llama-3",
    "llama3-flexible",
    traits=Traits(chunks=None, grouped=True, needs="2 or more chunks", source="arXiv 2407.21783, section 3.3.2"),
    check=_check,
)
def llama3(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """``group`` microbatches at a time, whether or not they divide the batch; the last group is what is left.

    From depth first (as many as ranks) to breadth first (all of them); by default the fewest that leave no short group.

    >>> print(*llama3(1, 2, microbatches=3, chunks=2, group=2))
    F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F2.1 B1 B2.1 B2
    """
    size = group or usual_group(ranks, microbatches)
    ahead = forwards(microbatches, chunks, size)
    return paired(ahead, backwards(ahead, chunks), warmup=2 * (ranks - 1 - rank) + (chunks - 1) * size)


@lru_cache(maxsize=256)
def _stuck(ranks: int, microbatches: int, chunks: int, group: int) -> bool:
    rest = microbatches % group
    if rest == 0 or rest >= ranks:
        return False
    rows = [flat(llama3(r, ranks, microbatches=microbatches, chunks=chunks, group=group)) for r in range(ranks)]
    return bool(waits_for_ever(rows, chunks))
