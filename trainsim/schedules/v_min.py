"""V-Min: a third of 1F1B's activation memory, with two chunks per rank in a V (Qi et al., 2024, arXiv 2405.15362)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, schedules
from trainsim.schedules.building_blocks import repeated
from trainsim.schedules.check import two_chunks
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.traits import Traits


@schedules.register(
    "v-min",
    "V-Min",
    "vmin",
    traits=Traits(
        placement=StagePlacement.V, chunks=2, split=True, needs="2 chunks", source="arXiv 2405.15362; sail-sg"
    ),
    check=two_chunks,
)
def v_min(rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None) -> Iterator[Slot]:
    """The least memory of a V; its bubble is that of 1F1B or more unless F, I and W take equally long.

    >>> print(*v_min(0, 1, microbatches=2))
    F0 F0.1 I0.1 I0 W0.1 W0 F1 F1.1 I1.1 I1 W1.1 W1
    """
    apart = 2 if ranks % 3 == 0 else 0
    block = tuple((r, 2 * ranks - r - 1, 2 * ranks + apart + r, 4 * ranks + apart - r - 1) for r in range(ranks))
    return iter(repeated(block, microbatches)[rank])
