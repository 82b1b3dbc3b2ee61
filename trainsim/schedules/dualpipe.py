"""DualPipe: two opposite pipelines whose forwards and backwards overlap (DeepSeek-AI, 2024, arXiv 2412.19437)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Pair, Slot, schedules
from trainsim.schedules.check import Numbers, at_least, multiple, two_chunks
from trainsim.schedules.dual import dual
from trainsim.schedules.messages import Item, Links, MessageBatch, Unsent, mails
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.traits import Traits


def _check(numbers: Numbers) -> None:
    ranks, microbatches = numbers.ranks, numbers.microbatches
    two_chunks(numbers)
    multiple(numbers, "stages", ranks, 2)
    multiple(numbers, "microbatches", microbatches, 2)
    at_least(numbers, 2 * ranks)


@schedules.register(
    "dualpipe",
    "DualPipe",
    traits=Traits(
        placement=StagePlacement.TWO_WAY,
        chunks=2,
        split=True,
        replicas=2,
        paired=True,
        needs="an even number of ranks; an even number of microbatches, 2 per rank or more",
        source="arXiv 2412.19437; deepseek-ai/DualPipe",
    ),
    check=_check,
)
def dualpipe(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None
) -> Iterator[Slot | Pair]:
    """Half of the microbatches go down the ranks (chunk 0) and half go up (chunk 1), through replicas of all stages.

    >>> print(*dualpipe(0, 2, microbatches=4))
    F0 F2.1 F1 B2.1 F3.1&B0 B3.1 I1 W1
    """
    order = _order(Unsent(rank=rank, ranks=ranks, chunks=2, placement=StagePlacement.TWO_WAY), microbatches)
    return (item for item in order if not isinstance(item, MessageBatch))


@mails.register("dualpipe")
def _posted(rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None) -> Iterator[Item]:
    return _order(Links(rank=rank, ranks=ranks, chunks=2, placement=StagePlacement.TWO_WAY), microbatches)


def _order(links: Links, microbatches: int) -> Iterator[Item]:
    rank, ranks = links.rank, links.ranks
    half = min(rank, ranks - 1 - rank)
    own, other = (0, 1) if rank < ranks // 2 else (1, 0)
    first = {0: 0, 1: microbatches // 2}
    return dual(
        links, place=half, places=ranks // 2, microbatches=microbatches // 2, directions=(own, other), first=first
    )
