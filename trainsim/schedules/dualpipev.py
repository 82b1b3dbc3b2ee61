"""DualPipeV: DualPipe cut in half, with two chunks per rank in a V instead of replicas (deepseek-ai/DualPipe)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Pair, Slot, schedules
from trainsim.schedules.check import Numbers, at_least, two_chunks
from trainsim.schedules.dual import dual
from trainsim.schedules.messages import Item, Links, MessageBatch, Unsent, mails
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.traits import Traits


def _check(numbers: Numbers) -> None:
    two_chunks(numbers)
    at_least(numbers, 2 * numbers.ranks)


@schedules.register(
    "dualpipev",
    "DualPipeV",
    "ScheduleDualPipeV",
    "dualpipe-v",
    traits=Traits(
        placement=StagePlacement.V,
        chunks=2,
        split=True,
        paired=True,
        needs="2 chunks; 2 microbatches per rank or more",
        source="deepseek-ai/DualPipe; PyTorch ScheduleDualPipeV",
    ),
    check=_check,
)
def dualpipev(
    rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None
) -> Iterator[Slot | Pair]:
    """Forwards of one chunk overlap with backwards of the other; the last rank holds the bottom of the V.

    >>> print(*dualpipev(0, 1, microbatches=2))
    F0 F0.1 F1 B0.1 F1.1&B0 B1.1 I1 W1
    """
    links = Unsent(rank=rank, ranks=ranks, chunks=2, placement=StagePlacement.V)
    order = dual(links, place=rank, places=ranks, microbatches=microbatches)
    return (item for item in order if not isinstance(item, MessageBatch))


@mails.register("dualpipev")
def _posted(rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None) -> Iterator[Item]:
    links = Links(rank=rank, ranks=ranks, chunks=2, placement=StagePlacement.V)
    return dual(links, place=rank, places=ranks, microbatches=microbatches)
