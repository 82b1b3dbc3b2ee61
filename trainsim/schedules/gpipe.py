"""GPipe: all forwards, then all backwards (Huang et al., 2019, arXiv 1811.06965)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.sequences import backwards, forwards, paired
from trainsim.schedules.traits import Traits


@schedules.register(
    "gpipe",
    "GPipe",
    "ScheduleGPipe",
    traits=Traits(source="Huang et al., 2019, arXiv 1811.06965; PyTorch ScheduleGPipe"),
    check=one_chunk,
)
def gpipe(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """Every rank holds all microbatches before its first backward; backwards ascend, as in PyTorch.

    >>> print(*gpipe(0, 2, microbatches=3))
    F0 F1 F2 B0 B1 B2
    """
    ahead = forwards(microbatches)
    return paired(ahead, backwards(ahead), warmup=microbatches)
