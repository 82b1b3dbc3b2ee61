"""Looped breadth-first: every chunk does all microbatches before the next (Lamy-Poirier, 2023, arXiv 2211.05953)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import no_group
from trainsim.schedules.sequences import forwards
from trainsim.schedules.traits import Traits


@schedules.register(
    "looped-bfs",
    "LoopedBFS",
    "ScheduleLoopedBFS",
    "breadth-first",
    "looped_bfs",
    traits=Traits(chunks=None, source="arXiv 2211.05953; PyTorch ScheduleLoopedBFS"),
    check=no_group,
)
def looped_bfs(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None
) -> Iterator[Slot]:
    """All forwards chunk by chunk, then all backwards, the last chunk and the last microbatch first (PyTorch).

    >>> print(*looped_bfs(0, 2, microbatches=2, chunks=2))
    F0 F1 F0.1 F1.1 B1.1 B0.1 B1 B0
    """
    ahead = forwards(microbatches, chunks)
    yield from ahead
    yield from (slot._replace(work=Work.B) for slot in reversed(ahead))


@schedules.register("looped-bfs-ascending", traits=Traits(chunks=None, source="arXiv 2211.05953"), check=no_group)
def ascending(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """The same with backwards from the first microbatch to the last.

    >>> print(*ascending(0, 2, microbatches=2, chunks=2))
    F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1
    """
    ahead = forwards(microbatches, chunks)
    yield from ahead
    yield from (Slot(Work.B, slot.microbatch, chunks - 1 - slot.chunk) for slot in ahead)
