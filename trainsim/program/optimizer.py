"""
The optimizer's part of an update as instructions: its traffic, and for Muon the products of Newton-Schulz.

Muon works on whole matrices. Ranks that share the momentum gather what others hold of a matrix and share the matrices
out among themselves; ranks of a tensor-parallel group gather theirs and all do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.groups import REPLICAS, TENSOR
from trainsim.contracts.instructions import Kernel, Meet
from trainsim.costs.kernels import cost
from trainsim.models.matrices import Matrix, Tensors
from trainsim.models.operations import Gemm
from trainsim.program.parts import Parts
from trainsim.sharding import replicas, within

GATHER = "momentum gather"


def optimizer_step(parts: Parts, rank: int, shard: int, *, stays: float = 1.0) -> Iterator[Kernel | Meet]:
    """What pipeline rank *rank* does between the gradient norm and the gathers, its states shared by *shard* ranks.

    *stays* is the part of the states that is on the GPU.
    """
    job, held = parts.job, parts.trained(rank)
    framework, optimizer = job.framework, job.training.optimizer
    moved = framework.kernels.optimizer_bytes_per_parameter * optimizer.traffic(held) * held.total / shard * stays
    copied = _copied(parts, rank)
    if optimizer.iterations and held.matrices:
        yield from _gathers(parts, held, shard, optimizer.gather_bytes)
        yield from _orthogonal(parts, rank, shard, optimizer.iterations)
    yield parts.blocks.traffic("optimizer", moved + copied, "optimizer")


def gradient_check(parts: Parts, rank: int) -> Kernel:
    """The pass over the gradients that finds an overflow."""
    return parts.blocks.traffic("overflow check", _copied(parts, rank), "optimizer")


def _copied(parts: Parts, rank: int) -> float:
    """Traffic of copies of the gradients that a rank has at the end of a step, bytes."""
    held = parts.trained(rank).total / parts.exchange(rank).gradients_shard
    return parts.job.framework.kernels.gradient_copy_bytes_per_parameter * held


def _gathers(parts: Parts, held: Tensors, shard: int, nbytes: float) -> Iterator[Meet]:
    """Momenta of whole matrices: between those who share the states, then over the tensor-parallel group."""
    total = nbytes * sum(m.elements for m in held.matrices)
    if shard > 1 and parts.network.has(REPLICAS):
        group = within(parts.job, shard) if shard < replicas(parts.job) else REPLICAS
        yield Meet(GATHER, "dp", group, "all_gather", total, stream="dp")
    if parts.network.has(TENSOR):
        yield Meet(GATHER, "tp", TENSOR, "all_gather", total * parts.job.parallel.tp / shard, stream="tp")


def _orthogonal(parts: Parts, rank: int, shard: int, iterations: int) -> Iterator[Kernel]:
    """Newton-Schulz on this rank's share of the matrices; the slowest rank has at least the largest one to do."""
    each = [(m, _seconds(parts, m)) for m in parts.trained(rank, tp=1).matrices]
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
