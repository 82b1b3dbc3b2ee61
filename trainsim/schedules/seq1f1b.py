"""Seq1F1B: 1F1B over slices of sequences, with causal attention (Sun et al., 2024, arXiv 2406.03488)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, schedules
from trainsim.schedules.sequences import forwards, paired
from trainsim.schedules.slices import SLICES, check_slices, sliced_backwards
from trainsim.schedules.traits import Traits


@schedules.register(
    "seq1f1b",
    "Seq1F1B",
    "seq-1f1b",
    traits=Traits(sliced=True, grouped=True, needs="causal attention", source="arXiv 2406.03488; sail-sg seq1f1b.py"),
    check=check_slices,
)
def seq1f1b(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """1F1B in slices (``group`` of them per sequence); backwards take the slices of a sequence from the last.

    >>> print(*seq1f1b(1, 2, microbatches=2, group=2))
    F0 F1 B1 F2 B0 F3 B3 B2
    """
    slices = group or SLICES
    ahead = forwards(microbatches * slices)
    return paired(ahead, sliced_backwards(microbatches, slices), warmup=ranks - 1 - rank + slices - 1)
