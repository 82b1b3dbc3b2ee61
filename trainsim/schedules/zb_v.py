"""ZB-V: zero bubbles at the memory of 1F1B, with two chunks per rank in a V (Qi et al., 2024, arXiv 2405.15362)."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.schedules import Slot, Work, schedules
from trainsim.schedules.check import two_chunks
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.traits import Traits


@schedules.register(
    "zb-v",
    "ZBV",
    "zbv",
    "ZBVZeroBubble",
    "ScheduleZBVZeroBubble",
    "zero-bubble-v-schedule",
    traits=Traits(
        placement=StagePlacement.V,
        chunks=2,
        split=True,
        needs="2 chunks",
        source="arXiv 2405.15362; PyTorch ZBVZeroBubble",
    ),
    check=two_chunks,
)
def zb_v(rank: int, ranks: int, *, microbatches: int, chunks: int = 2, group: int | None = None) -> Iterator[Slot]:
    """The order of PyTorch: planned for 2 * ranks - 1 microbatches or more, then cut to those that there are.

    >>> print(*zb_v(0, 1, microbatches=2))
    F0 F0.1 I0.1 W0.1 F1 I0 W0 F1.1 I1.1 W1.1 I1 W1
    """
    planned = _planned(rank, ranks, max(2 * ranks - 1, microbatches))
    return (slot for slot in planned if slot.microbatch < microbatches)


def _planned(rank: int, ranks: int, microbatches: int) -> Iterator[Slot]:
    after = ranks - rank
    count = dict.fromkeys(((work, chunk) for work in (Work.F, Work.I, Work.W) for chunk in (0, 1)), 0)

    def step(*passes: tuple[Work, int]) -> Iterator[Slot]:
        for work, chunk in passes:
            yield Slot(work, count[work, chunk], chunk)
            count[work, chunk] += 1

    f0, f1 = (Work.F, 0), (Work.F, 1)
    i0, i1, w0, w1 = (Work.I, 0), (Work.I, 1), (Work.W, 0), (Work.W, 1)
    for _ in range(2 * after - 1):
        yield from step(f0)
    for _ in range(rank):
        yield from step(f1, f0)
    for _ in range(after):
        yield from step(f1, i1, w1)
    while count[f1] < count[f0] or count[f0] < microbatches:
        if count[f0] < microbatches:
            yield from step(f0)
        yield from step(i0, w0, f1, i1, w1)
    for _ in range(rank):
        yield from step(i0, i1)
    for _ in range(after):
        yield from step(i0, w0)
    yield from step(*[w1] * (count[i1] - count[w1]), *[w0] * (count[i0] - count[w0]))
