"""
Seconds of a matrix product: tiles in waves over the SMs, against memory traffic.

``t = overhead + (T^4 + M^4)^(1/4)`` with ``T`` the best tile's waves and ``M`` the bytes over the bandwidth. Form and
errors: fitted on Vidur's A100 and H100 timings (arXiv 2405.05465), 4 to 6 % median on shapes it has not seen.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from trainsim.costs.types import Cost
from trainsim.errors import InvalidPlan
from trainsim.hardware.gpu import GPU
from trainsim.hardware.kernel_constants import GemmConstants
from trainsim.models.operations import Gemm
from trainsim.models.shapes import LOW_PRECISION

BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0} | LOW_PRECISION
PEAKS = {"blockwise": "fp8"}
"""Peaks of products that have a speed of their own beside the precision's."""
ACCUMULATED = 8.0  # an fp32 result that is read and written


def gemm_cost(work: Gemm, gpu: GPU, precision: str, speed: float = 1.0) -> Cost:
    """Seconds and what it uses of the GPU; the arithmetic is *speed* times as fast as in a burst.

    A whole wave keeps every SM; less than a wave keeps its tiles' share.
    """
    constants = gpu.kernels.gemm
    if work.grouped:
        return _grouped_cost(work, gpu, precision, speed)
    precision = work.precision or precision
    peak = product_peak(gpu, precision)
    waves, compute = _compute(work, constants, peak / gpu.sms, gpu.sms)
    compute /= speed * constants.speed * gpu.clock * _layout(work, constants) * _alignment(work, constants)
    memory = _bytes(work, precision) / (gpu.memory_bandwidth * constants.memory_efficiency)
    seconds = constants.overhead + (compute**4 + memory**4) ** 0.25
    return Cost(seconds, min(1.0, waves), min(1.0, memory / seconds))


def _grouped_cost(work: Gemm, gpu: GPU, precision: str, speed: float) -> Cost:
    """The products of several experts: they hardly share waves, so each takes its own, one after the other."""
    constants = gpu.kernels.gemm
    alone = gemm_cost(replace(work, batch=1, grouped=False), gpu, precision, speed)
    each = alone.seconds - constants.overhead + constants.grouped_overhead
    seconds = constants.overhead + work.batch * each
    return Cost(seconds, alone.sm, min(1.0, alone.hbm * alone.seconds * work.batch / seconds))


def product_peak(gpu: GPU, precision: str) -> float:
    """FLOP/s that efficiencies refer to: the 16-bit peak times what a lower precision achieves over it."""
    if precision in LOW_PRECISION:
        gpu.peak(PEAKS.get(precision, precision))  # refuses what the GPU cannot do
        speedup = gpu.kernels.gemm.speedup
        if precision not in speedup:
            raise InvalidPlan(f"kernels {gpu.kernels.name} say nothing of {precision}: add gemm.speedup.{precision}")
        return gpu.half_peak * speedup[precision]
    return gpu.peak(precision)


def _compute(work: Gemm, constants: GemmConstants, per_sm: float, sms: int) -> tuple[float, float]:
    """(waves, seconds) of the fastest tile.

    Where tiles of a weight gradient leave SMs without work, several blocks share the depth of each (split-k).
    """
    m, n, k, sharp = work.m, work.n, work.k, constants.wave_sharpness
    split = min(constants.split_k, k / constants.split_k_depth) if work.role == "weight" else 1.0
    best, best_waves = float("inf"), 0.0
    for tile_m, tile_n, efficiency in constants.tiles:
        waves = -(-m // tile_m) * -(-n // tile_n) * work.batch / sms
        parts = min(split, 1.0 / waves) if waves < 1.0 and split > 1.0 else 1.0
        waves *= parts
        depth = 2.0 * (k / parts + constants.fill) / per_sm
        rounds = (1 - sharp) * ceil(waves) + sharp * max(waves, 1.0)
        seconds = rounds * tile_m * tile_n * depth / efficiency
        if seconds < best:
            best, best_waves = seconds, waves
    return best_waves, best


def _layout(work: Gemm, constants: GemmConstants) -> float:
    """Speed by the operands' layout; measured on linear layers, so batched products are left alone."""
    return constants.layout[work.role] if work.batch == 1 else 1.0


def _alignment(work: Gemm, constants: GemmConstants) -> float:
    """Speed where a size that is contiguous in memory is not aligned."""
    contiguous = (work.m, work.n) if work.role == "weight" else (work.n, work.k)
    if all(size % constants.alignment == 0 for size in contiguous):
        return 1.0
    return constants.misaligned["single" if work.batch == 1 else "batched"]


def _bytes(work: Gemm, precision: str) -> float:
    element = BYTES[precision]
    result = ACCUMULATED if work.accumulates else max(element, BYTES["bf16"])
    inputs = element * (work.m * work.k + work.k * work.n)
    return work.batch * (inputs + result * work.m * work.n)
