"""Seconds of kernels that only move bytes: ``overhead`` each, ``bytes / (bandwidth x efficiency of their kind)``."""

from __future__ import annotations

from trainsim.costs.types import Cost
from trainsim.hardware.gpu import GPU
from trainsim.models.operations import MemoryBound


def memory_bound_cost(work: MemoryBound, gpu: GPU, speed: float = 1.0) -> Cost:
    """Seconds, at *speed* times the rate of a burst; it keeps the memory busy and some of the SMs.

    Raises UnknownName for an unknown kind or variant.
    """
    constants = gpu.kernels
    overhead, efficiency = constants.rate(work.kind, work.variant)
    seconds = overhead * work.kernels + work.nbytes / (gpu.memory_bandwidth * efficiency * speed)
    return Cost(seconds, constants.memory_sm_share, 1.0)
