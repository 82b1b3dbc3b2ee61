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


class PairTimes:
    """Seconds of the passes of a job whose schedule runs some of them in pairs; what blocks and stages have in common
    is worked out once."""

    def __init__(self, parts: Parts):
        self.parts = parts
        self._passes: dict[tuple[object, ...], Seconds] = {}

    def through(self, stage: Stage, half: str) -> Seconds:
        """A pass through *stage*. Where tokens go to experts, other collectives stay among the kernels."""
        layers = Counter(map(id, self.parts.layer_blocks(stage)))
        key = frozenset(layers.items()), stage.embedding, stage.head, half
        if key not in self._passes:
            ends = [*([self.parts.embedding] if stage.embedding else []), *([self.parts.head] if stage.head else [])]
            counted = Counter(self.parts.layer_blocks(stage))
            counted.update(ends)
            each = [(block_seconds(self.parts, block, half), times) for block, times in counted.items()]
            main, hidden = (sum(s[k] * times for s, times in each) for k in (0, 1))
            self._passes[key] = Seconds(main, hidden)
        return self._passes[key]


def paired_seconds(times_of: PairTimes, rank: int) -> float:
    """Seconds that pipeline rank *rank* works in a step at the least, whose schedule runs some passes in pairs."""
    parts = times_of.parts
    job, pipeline = parts.job, parts.job.pipeline
    stages = {stage.chunk: stage for stage in parts.of_rank(rank)}
    known = {
        (work, chunk): times_of.through(stage, half) for work, half in HALVES.items() for chunk, stage in stages.items()
    }
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


def block_seconds(parts: Parts, block: Block, half: str) -> Seconds:
    """A pass through one block, of two that run at once; worked out once for all jobs that have the block."""
    key = id(block), half
    if key not in parts.in_pairs:
        parts.in_pairs[key] = _block_seconds(parts, block, half)
    found: Seconds = parts.in_pairs[key]
    return found


def _block_seconds(parts: Parts, block: Block, half: str) -> Seconds:
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
