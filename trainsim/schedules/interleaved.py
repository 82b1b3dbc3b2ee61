"""Interleaved 1F1B: several chunks per rank shorten the fill (Narayanan et al., 2021, arXiv 2104.04473)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.errors import InvalidPlan
from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import Numbers
from trainsim.schedules.sequences import backwards, forwards, paired
from trainsim.schedules.traits import Traits


def usual_group(ranks: int, microbatches: int) -> int:
    """The smallest group of at least *ranks* microbatches that leaves no rest, or one of at least *ranks*.

    That is *ranks* where they divide the microbatches (Megatron-LM's default), and otherwise what PyTorch
    picks wherever PyTorch accepts the numbers; fewer microbatches than ranks are one group.

    >>> [usual_group(4, microbatches) for microbatches in (3, 8, 9, 10)], usual_group(12, 128)
    ([3, 4, 5, 5], 16)
    """
    sizes = range(min(ranks, microbatches), microbatches + 1)
    return next(size for size in sizes if _fits(ranks, microbatches, size))


def _fits(ranks: int, microbatches: int, group: int) -> bool:
    rest = microbatches % group
    return rest == 0 or rest >= ranks


def groups_fit(numbers: Numbers) -> None:
    """The check of a schedule that is interleaved in groups of microbatches."""
    name, ranks, microbatches, chunks, group = numbers
    if chunks == 1:
        raise InvalidPlan(f"{name} needs 2 or more chunks per rank, not 1; with chunks: 1 use 1f1b.")
    if group is None:
        return
    least = min(ranks, microbatches)
    if not least <= group <= microbatches or not _fits(ranks, microbatches, group):
        works = [size for size in range(least, microbatches + 1) if _fits(ranks, microbatches, size)]
        listed = ", ".join(map(str, works[:6])) + (", ..." if len(works) > 6 else "")
        raise InvalidPlan(
            f"{name} cannot cut {microbatches} microbatches into groups of {group} on {ranks} "
            f"stages: every group, the last one too, needs at least {least}; group: {listed} would work."
        )


@schedules.register(
    "interleaved-1f1b",
    "interleaved",
    "Interleaved1F1B",
    "ScheduleInterleaved1F1B",
    "interleaved_1f1b",
    "interleaved1f1b",
    "1f1b-interleaved",
    "vpp",
    traits=Traits(
        chunks=None,
        grouped=True,
        needs="2 or more chunks",
        source="Narayanan et al., 2021, arXiv 2104.04473; Megatron-LM, PyTorch ScheduleInterleaved1F1B",
    ),
    check=groups_fit,
)
def interleaved_1f1b(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """Groups of microbatches go through the chunks in turn; chunk c of rank r is stage ``c * ranks + r``.

    The order of Megatron-LM, where *group* is ``microbatch_group_size_per_vp_stage``, and of PyTorch's
    ScheduleInterleaved1F1B. In flight: ``2 * (ranks - 1 - rank) + (chunks - 1) * group + 1`` chunks.

    >>> print(*interleaved_1f1b(1, 2, microbatches=2, chunks=2))
    F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1
    """
    size = group or usual_group(ranks, microbatches)
    ahead = forwards(microbatches, chunks, size)
    return paired(ahead, backwards(ahead, chunks), warmup=2 * (ranks - 1 - rank) + (chunks - 1) * size)
