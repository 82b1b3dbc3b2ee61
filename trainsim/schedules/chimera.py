"""Chimera: two opposite 1F1B pipelines merged (Li and Hoefler, 2021, arXiv 2107.06925)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import Numbers, multiple, two_chunks
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.traits import Traits


def _check(numbers: Numbers) -> None:
    ranks, microbatches = numbers.ranks, numbers.microbatches
    two_chunks(numbers)
    multiple(numbers, "stages", ranks, 2)
    multiple(numbers, "microbatches", microbatches, ranks)


@schedules.register(
    "chimera",
    "Chimera",
    traits=Traits(
        placement=StagePlacement.TWO_WAY,
        chunks=2,
        replicas=2,
        needs="an even number of ranks; microbatches a multiple of it",
        source="arXiv 2107.06925; Shigangli/Chimera (direct concatenation)",
    ),
    check=_check,
)
def chimera(rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None) -> Iterator[Slot]:
    """Blocks of as many microbatches as ranks, half of them down (chunk 0), half up (chunk 1); blocks follow directly.

    In slots of equal length, microbatch k of a direction goes forward through stage s in slot 2k + s and back in
    slot 2 * ranks - 1 - s + 2k of its block; the two directions never meet in a slot.

    >>> print(*chimera(0, 2, microbatches=4))
    F0 F2.1 B2.1 B0 F1 F3.1 B3.1 B1
    """
    half, block = ranks // 2, 2 * ranks
    slots: list[tuple[int, Slot]] = []
    for microbatch in range(microbatches):
        chunk, of_direction = divmod(microbatch, microbatches // 2)
        blocks, k = divmod(of_direction, half)
        stage = rank if chunk == 0 else ranks - 1 - rank
        begin = blocks * block + 2 * k
        slots.append((begin + stage, Slot(Work.F, microbatch, chunk)))
        slots.append((begin + 2 * ranks - 1 - stage, Slot(Work.B, microbatch, chunk)))
    return (slot for _, slot in sorted(slots))
