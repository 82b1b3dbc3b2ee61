"""
The optimizer's part of an update as instructions: its traffic, and for Muon the products of Newton-Schulz.

Muon works on whole matrices. Ranks that share the momentum gather what others hold of a matrix and share the matrices
out among themselves; ranks of a tensor-parallel group gather theirs and all do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.groups import TENSOR
from trainsim.contracts.instructions import Kernel, Meet
from trainsim.costs.kernels import cost
from trainsim.models.matrices import Matrix, Tensors
from trainsim.models.operations import Gemm
from trainsim.program.early_updates import copied_bytes, moved_bytes
from trainsim.program.parts import Parts
from trainsim.program.states import shapes
from trainsim.sharding.parameter_groups import Held
from trainsim.sharding.plan import ShardingPlan
from trainsim.sharding.replicas import within

GATHER = "momentum gather"


def optimizer_step(parts: Parts, rank: int, sharding: ShardingPlan, *, stays: float = 1.0) -> Iterator[Kernel | Meet]:
    """What pipeline rank *rank* does between the gradient norm and the gathers of its new parameters, shared as
    *sharding* says.

    *stays* is the part of the states that is on the GPU.
    """
    job, optimizer = parts.job, parts.job.training.optimizer
    held = _trained(parts, rank, sharding)
    squares = _trained(parts, rank, sharding, tp=1) if optimizer.iterations else []
    for one, square in zip(held, squares, strict=False):
        if shapes(job, one.group).matrices:
            yield from _gathers(parts, one, optimizer.gather_bytes)
            yield from _orthogonal(parts, shapes(job, square.group), one.shards.optimizer, optimizer.iterations)
    moved = moved_bytes(job, held, stays) + copied_bytes(job, held)
    yield parts.blocks.traffic("optimizer", moved, "optimizer")


def _trained(parts: Parts, rank: int, sharding: ShardingPlan, *, tp: int | None = None) -> list[Held]:
    """The groups that are updated, with shapes as cut over *tp* ranks (None: its own)."""
    return [held for held in sharding.held(parts.holdings.groups(rank, tp=tp)) if held.group.trained]


def gradient_check(parts: Parts, rank: int) -> Kernel:
    """The pass over the gradients that finds an overflow."""
    held = _trained(parts, rank, parts.sharding(rank))
    return parts.blocks.traffic("overflow check", copied_bytes(parts.job, held), "optimizer")


def _gathers(parts: Parts, held: Held, nbytes: float) -> Iterator[Meet]:
    """Momenta of whole matrices: between those who share the states, then over the tensor-parallel group."""
    shard = held.shards.optimizer
    total = nbytes * sum(m.elements for m in shapes(parts.job, held.group).matrices)
    if shard > 1 and parts.network.has(held.group.over):
        over = within(parts.job, shard) if shard < held.group.replicas else held.group.over
        yield Meet(GATHER, "dp", over, "all_gather", total, stream="dp")
    if parts.network.has(TENSOR):
        yield Meet(GATHER, "tp", TENSOR, "all_gather", total * parts.job.parallel.tp / shard, stream="tp")


def _orthogonal(parts: Parts, tensors: Tensors, shard: int, iterations: int) -> Iterator[Kernel]:
    """Newton-Schulz on this rank's share of the matrices; the slowest rank has at least the largest one to do."""
    each = [(m, _seconds(parts, m)) for m in tensors.matrices]
    fair = sum(seconds * m.copies for m, seconds in each) / shard
    slowest = max(fair, max(seconds for _, seconds in each))
    yield Kernel("newton-schulz", "optimizer", iterations * slowest * parts.blocks.spread, 1.0, 0.0)


def _seconds(parts: Parts, m: Matrix) -> float:
    """Seconds of one iteration on one matrix."""
    gpu, precision = parts.job.cluster.gpu, parts.job.training.precision
    return sum(cost(work, gpu, precision).seconds for work in newton_schulz(m, "bf16" if "bf16" in gpu.flops else None))


def newton_schulz(m: Matrix, precision: str | None = None) -> tuple[Gemm, Gemm, Gemm]:
    """The products of one iteration: A = X X', B = b A + c A A, X = a X + B X, with X no taller than wide.

    >>> [work.flops for work in newton_schulz(Matrix(100, 50, 1))]
    [500000.0, 250000.0, 500000.0]
    """
    small, large = sorted((m.rows, m.columns))
    return (
        Gemm("newton-schulz", small, small, large, precision=precision),
        Gemm("newton-schulz", small, small, small, precision=precision),
        Gemm("newton-schulz", small, large, small, precision=precision),
    )
