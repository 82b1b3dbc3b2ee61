"""
Seconds of a fused attention kernel: useful FLOP over an efficiency that rises with the number of keys.

``t = overhead + (T^2 + L^2)^(1/2)``: ``T`` is the work spread evenly over the SMs, ``L`` the longest block of queries,
which counts where heads and queries are few. Charts have forward and backward together, and for some kernels forward
alone; backward then takes the rest, so that both together take what was measured. Sources: charts of FlashAttention
and its successors, SimuMax's tables for few heads (up to 9 % off on an A100's forward, 14 % on a B200's).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import hypot

from trainsim.costs.types import Cost
from trainsim.hardware.gpu import GPU
from trainsim.hardware.kernel_constants import Curve
from trainsim.models.operations import Attention

FORWARD, BACKWARD = 1.0, 2.5
"""Products of a pass in units of the forward's two: backward has five."""


def attention_cost(work: Attention, gpu: GPU, speed: float = 1.0) -> Cost:
    """Seconds and what it uses of the GPU, *speed* times as fast as in a burst; 16-bit arithmetic whatever the job's
    precision.

    A narrow window is less efficient, but never takes longer than a wider one, nor than none.
    """
    return min((_cost(wider, gpu, speed) for wider in _widened(work)), key=lambda cost: cost.seconds)


def _widened(work: Attention) -> Iterator[Attention]:
    """*work*, then with its window doubled until all keys are in it."""
    yield work
    if work.window is not None:
        window = 2 * work.window
        yield from _widened(replace(work, window=window if window < work.keys else None))


def _cost(work: Attention, gpu: GPU, speed: float) -> Cost:
    constants = gpu.kernels.attention
    whole = _in_blocks(work, constants.query_block)
    waves = whole.batch * whole.heads * whole.queries / (constants.query_block * gpu.sms)
    even = whole.flops / (gpu.half_peak * efficiency(whole, gpu) * speed * gpu.clock)
    longest = even / waves * constants.block_alone[work.direction]
    if work.causal:
        longest *= whole.reach / (whole.keys * whole.share)  # the last block looks at all keys, the mean one at half
    seconds = hypot(even, longest) + constants.overhead[work.direction]
    memory = _bytes(work) / gpu.memory_bandwidth
    return Cost(max(seconds, memory), min(1.0, waves), min(1.0, memory / seconds))


def _in_blocks(work: Attention, block: int) -> Attention:
    """*work* with a block of queries, keys and window at least: no part of a block is quicker."""
    window = work.window and max(work.window, block)
    return replace(work, queries=max(work.queries, block), keys=max(work.keys, block), window=window)


def efficiency(work: Attention, gpu: GPU) -> float:
    """Part of the 16-bit peak that *work* reaches in a burst, where all SMs have enough to do."""
    constants = gpu.kernels.attention
    curves = constants.curves[constants.known(work.kernel)]
    together = _between(curves.together, work)
    forward = _between(curves.forward, work) if curves.forward else together
    if work.direction == "forward":
        return forward
    return BACKWARD / ((FORWARD + BACKWARD) / together - FORWARD / forward)


def _between(curves: dict[int, Curve], work: Attention) -> float:
    """The efficiency at the head size of *work*: between those of the two nearest, or that of the nearest."""
    size = (work.head_dim + work.values) / 2
    below = max((known for known in curves if known <= size), default=min(curves))
    above = min((known for known in curves if known >= size), default=max(curves))
    low, high = (curves[known].at(work.reach, causal=work.causal) for known in (below, above))
    return low if below == above else low + (high - low) * (size - below) / (above - below)


def _bytes(work: Attention) -> float:
    """Queries, output (and their gradients) once, keys and values once, in 16 bits."""
    numbers = work.head_dim + work.values
    once = 2.0 * work.batch * numbers * (work.heads * work.queries + work.kv_heads * work.keys)
    return once * (2.0 if work.direction == "backward" else 1.0)
