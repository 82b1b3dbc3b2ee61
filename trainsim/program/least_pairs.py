"""
The least time that a rank works where a forward and a backward run at once: what one computes hides what the other
waits for, as far as it goes.

Both passes of a pair take turns on the compute chain, and their tokens on the way to experts share a lane, which is
posted by the pair and awaited in it. So a pair takes as long as its kernels, or as its lane, if that is longer.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from trainsim.contracts.groups import EXPERTS
from trainsim.contracts.instructions import Kernel
from trainsim.program.parts import Parts
from trainsim.program.pieces import Block, Overlapped
from trainsim.program.stages import Stage
from trainsim.schedules import Pair, Work
from trainsim.schedules.lookup import slots_of

HALVES = {Work.F: "forward", Work.B: "backward", Work.I: "input_gradient", Work.W: "weight_gradient"}


class Seconds(NamedTuple):
    """Of a pass: on the compute chain, and in exchanges that another pass may hide."""

    main: float
    hidden: float


def paired_seconds(parts: Parts, rank: int) -> float:
    """Seconds that pipeline rank *rank* works in a step at the least, whose schedule runs some passes in pairs."""
    job, pipeline = parts.job, parts.job.pipeline
    stages = {stage.chunk: stage for stage in parts.of_rank(rank)}
    known: dict[tuple[Work, int], Seconds] = {}
    for work in HALVES:
        for chunk, stage in stages.items():
            known[work, chunk] = _pass(parts, stage, HALVES[work])
    total = 0.0
    numbers = pipeline.schedule, rank, job.parallel.pp, job.training.microbatches, pipeline.chunks, pipeline.group
    for some, times in _slots(*numbers):
        each = [known[slot] for slot in some]
        main, hidden = (sum(column) for column in zip(*each, strict=True))
        total += times * (max(main, hidden) if len(some) > 1 else main + hidden)
    return total


@lru_cache(maxsize=512)
def _slots(
    schedule: str, rank: int, ranks: int, microbatches: int, chunks: int, group: int | None
) -> tuple[tuple[tuple[tuple[Work, int], ...], int], ...]:
    """(Passes that run at once, how often) of the order of a rank, by work and chunk."""
    items = slots_of(schedule, rank, ranks, microbatches=microbatches, chunks=chunks, group=group)
    counts = Counter(
        tuple((slot.work, slot.chunk) for slot in (item if isinstance(item, Pair) else (item,))) for item in items
    )
    return tuple(counts.items())


def _pass(parts: Parts, stage: Stage, half: str) -> Seconds:
    """A pass through *stage*. Where tokens go to experts, other collectives stay among the kernels."""
    blocks = [*([parts.embedding] if stage.embedding else []), *([parts.head] if stage.head else [])]
    counted = Counter(parts.layer_blocks(stage))
    counted.update(blocks)
    each = [(block_seconds(parts, block, half), times) for block, times in counted.items()]
    return Seconds(sum(s.main * times for s, times in each), sum(s.hidden * times for s, times in each))


def block_seconds(parts: Parts, block: Block, half: str) -> Seconds:
    """A pass through one block, of two that run at once."""
    main = hidden = 0.0
    stay = parts.network.has(EXPERTS)
    for piece in getattr(block, half):
        if isinstance(piece, Overlapped):
            main += sum(kernel.seconds for kernel in piece.kernels)
        elif isinstance(piece, Kernel):
            main += piece.seconds
        else:
            alone = parts.network.seconds(piece.communicator, piece.operation, piece.nbytes) * piece.exposed
            if piece.kind == EXPERTS.axes[0]:
                hidden += alone
            elif stay:
                main += alone
    return Seconds(main, hidden)
