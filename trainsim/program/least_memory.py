"""
The least memory that a job needs, without running it: what its fullest rank holds in the order of its passes.

States, buffers and what passes keep are counted as the simulation counts them (a chain takes and gives back in the
order of its instructions, whatever the clock says). What is fetched beside the passes depends on the clock and is left
out, so that the simulated need is never lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np

from trainsim.contracts.instructions import Memory
from trainsim.contracts.system import Floats
from trainsim.program.kept_results import kept_anyway, kept_keys, kept_logits
from trainsim.program.layer_work import mask_bytes_made
from trainsim.program.offload import on_gpu
from trainsim.program.parts import Parts
from trainsim.program.pieces import Block
from trainsim.program.rank import RankPlan
from trainsim.program.stages import Stage
from trainsim.program.step import rank_memory
from trainsim.program.update import made_by_part
from trainsim.schedules import Pair, Slot, Work
from trainsim.schedules.lookup import facts, slots_of

ENOUGH = 4
"""Micro-batches per pipeline rank with which as many are in flight as with more (a law that the tests keep)."""


def least_bytes(parts: Parts, enough: float = inf) -> float:
    """Bytes that the fullest rank of a job cannot do without, at the least; *enough*: no more need to be found.

    The first, the second, the last, and each pipeline rank with more layers than those before it are looked at: one of
    them is the fullest of the usual orders.
    """
    most = 0.0
    for rank in _fullest(parts):
        most = max(most, _needed(parts, rank))
        if most > enough:
            break
    return most


def _fullest(parts: Parts) -> Sequence[int]:
    """Pipeline ranks of which one is the fullest."""
    last = parts.job.parallel.pp - 1
    layers = [sum(stage.layers for stage in parts.of_rank(rank)) for rank in range(last + 1)]
    before = [0, *accumulate(layers, max)]
    more = [rank for rank, here in enumerate(layers) if here > before[rank]]
    return list(dict.fromkeys((0, min(1, last), last, *more)))


@lru_cache(maxsize=8)
def plan_of(parts: Parts, rank: int) -> RankPlan:
    """Pipeline rank *rank* of *parts*, which every bound of a job asks for."""
    return RankPlan(parts=parts, rank=rank)


@lru_cache(maxsize=8)
def _held_by(rank_plan: RankPlan) -> Memory:
    """What a pipeline rank holds all the time."""
    return rank_memory(rank_plan)


def least_states(parts: Parts) -> float:
    """Bytes of the states of the model on the first pipeline rank, whatever is recomputed."""
    memory = _held_by(plan_of(parts, 0))
    return memory.weights + memory.gradients + memory.optimizer - _paged(parts, memory) + memory.framework


def _paged(parts: Parts, memory: Memory) -> float:
    """Bytes of the optimizer's states that can leave the GPU."""
    return memory.optimizer if parts.job.training.optimizer.paged else 0.0


def _needed(parts: Parts, rank: int) -> float:
    """Bytes that pipeline rank *rank* cannot do without."""
    rank_plan = plan_of(parts, rank)
    memory = _held_by(rank_plan)
    held = memory.total - _paged(parts, memory) - memory.framework + _most(rank_plan)
    return held * (1.0 + memory.slack * (1.0 - memory.returned)) + memory.framework


def _most(rank_plan: RankPlan) -> float:
    """The most that passes, or the update, hold at once above what is held all the time."""
    parts, fresh = rank_plan.parts, rank_plan.fresh_gradients
    update = fresh
    if not parts.job.training.optimizer_in_backward:
        update += rank_plan.states().step_transient * on_gpu(rank_plan)
    if parts.job.training.activation_offload != "none":
        return update
    kept = [kept_by(parts, stage) for stage in rank_plan.stages]
    made = [_gradients(rank_plan, stage) if fresh else 0.0 for stage in rank_plan.stages]
    each = np.array([*(k.until_backward for k in kept), *(k.until_weights for k in kept), *made])
    moments = _moments_of(rank_plan)
    within = np.array([kept[chunk].within[WORKS.index(work)] for work, chunk in moments.passes])
    return max(update, float((moments.held @ each + moments.whole * within).max(initial=0.0)))


def _gradients(rank_plan: RankPlan, stage: Stage) -> float:
    """Bytes of gradients that the first backward of a stage makes and the update gives back."""
    each = rank_plan.fresh_gradients / rank_plan.trainable if rank_plan.trainable else 0.0
    return each * sum(made_by_part(rank_plan, stage))


# -- one pass --------------------------------------------------------------------------------------------------------

WORKS = (Work.F, Work.B, Work.I, Work.W)


class KeptBytes(NamedTuple):
    """What one microbatch holds of a stage: from its forward to its backward, and from there to a weight gradient that
    is put off; ``within``: the most that a pass of each of WORKS takes above what is there when it begins."""

    until_backward: float
    until_weights: float
    within: tuple[float, ...]


def kept_by(parts: Parts, stage: Stage) -> KeptBytes:
    """What the passes of a microbatch over *stage* take and give back, in the order of their instructions."""
    blocks = [*([parts.embedding] if stage.embedding else []), *parts.layer_blocks(stage)]
    blocks += [parts.head] if stage.head else []
    results = kept_logits(parts, stage) - kept_anyway(parts, stage)
    results += kept_keys(parts, stage) + parts.kept_output(stage)
    ahead = list(_ahead(parts, blocks))
    back = [list(_back(blocks, half)) for half in ("backward", "input_gradient", "weight_gradient")]
    return KeptBytes(
        until_backward=sum(taken for taken, _ in ahead) + results,
        until_weights=sum(block.kept for block in blocks),
        within=(_highest(ahead), *map(_highest, back)),
    )


def _ahead(parts: Parts, blocks: Sequence[Block]) -> Iterator[tuple[float, float]]:
    """(Bytes taken, bytes needed above them for a while) by each part of a forward."""
    made = mask_bytes_made(parts.job)
    for block in blocks:
        yield block.saved, block.saved + max(block.transient_forward, made)
        made = 0.0


def _back(blocks: Sequence[Block], half: str) -> Iterator[tuple[float, float]]:
    """The same of a backward or a half of one, whose parts give back."""
    for block in reversed(blocks):
        first = half != "weight_gradient" or not block.input_gradient
        needed = block.transient if first and getattr(block, half) else 0.0
        given = {"backward": block.saved, "input_gradient": block.saved - block.kept, "weight_gradient": block.kept}
        yield -given[half], needed


def _highest(way: Sequence[tuple[float, float]]) -> float:
    """The most that is taken at once on *way*: (what is left behind, what is needed meanwhile) step by step."""
    level = most = 0.0
    for left, needed in way:
        most = max(most, level + needed)
        level += left
    return max(most, level)


# -- the order of a rank ---------------------------------------------------------------------------------------------


class Moments(NamedTuple):
    """The different moments of an order: ``held`` counts by chunk [moments, 3 chunks] microbatches between forward and
    backward, those whose weight gradient is put off, and whether gradients are there; ``passes`` are what begins
    then. ``whole`` is 1 where nothing else runs meanwhile."""

    held: Floats
    passes: tuple[tuple[Work, int], ...]
    whole: float


def _moments_of(rank_plan: RankPlan) -> Moments:
    job = rank_plan.parts.job
    pipeline, ranks, shape = job.pipeline, job.parallel.pp, facts(job.pipeline.schedule)
    if shape.planned:  # its order is not known before it is planned
        nothing = np.zeros((pipeline.chunks, 3 * pipeline.chunks))
        return Moments(nothing, tuple((Work.F, chunk) for chunk in range(pipeline.chunks)), 1.0)
    microbatches, enough = job.training.microbatches, ENOUGH * ranks * shape.replicas
    few = enough if microbatches > enough and microbatches % ranks == 0 else microbatches
    return _moments(pipeline.schedule, rank_plan.rank, ranks, few, pipeline.chunks, pipeline.group)


@lru_cache(maxsize=4096)
def _moments(schedule: str, rank: int, ranks: int, microbatches: int, chunks: int, group: int | None) -> Moments:
    """Backwards of pairs are taken first, which holds no more than what the two of them do at once."""
    items = slots_of(schedule, rank, ranks, microbatches=microbatches, chunks=chunks, group=group)
    paired = any(isinstance(item, Pair) for item in items)
    seen: dict[tuple[object, ...], tuple[list[int], tuple[Work, int]]] = {}
    level = [0] * (3 * chunks)
    for work, chunk in _in_order(items):
        seen.setdefault((work, chunk, *level), ([*level], (work, chunk)))
        _advance(level, work, chunk, chunks)
    rows, passes = zip(*seen.values(), strict=True)
    return Moments(np.array(rows, np.float64), tuple(passes), 0.0 if paired else 1.0)


def _in_order(items: Sequence[Slot | Pair]) -> Iterator[tuple[Work, int]]:
    for item in items:
        for slot in (item.backward, item.forward) if isinstance(item, Pair) else (item,):
            yield slot.work, slot.chunk


def _advance(level: list[int], work: Work, chunk: int, chunks: int) -> None:
    """What is held after a pass."""
    if work is Work.F:
        level[chunk] += 1
    elif work is not Work.W:
        level[chunk] -= 1
    if work is Work.I:
        level[chunks + chunk] += 1
    if work is Work.W:
        level[chunks + chunk] -= 1
    if work in (Work.B, Work.W):
        level[2 * chunks + chunk] = 1
