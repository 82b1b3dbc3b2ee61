"""TeraPipe: GPipe over slices of sequences, with causal attention (Li et al., 2021, arXiv 2102.07988)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, schedules
from trainsim.schedules.sequences import forwards
from trainsim.schedules.slices import SLICES, check_slices, sliced_backwards
from trainsim.schedules.traits import Traits


@schedules.register(
    "terapipe",
    "TeraPipe",
    traits=Traits(sliced=True, grouped=True, needs="causal attention", source="arXiv 2102.07988"),
    check=check_slices,
)
def terapipe(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """All forward slices (``group`` of them per sequence), then the backwards, last slice of a sequence first.

    >>> print(*terapipe(0, 2, microbatches=2, group=2))
    F0 F1 F2 F3 B1 B0 B3 B2
    """
    slices = group or SLICES
    yield from forwards(microbatches * slices)
    yield from sliced_backwards(microbatches, slices)
