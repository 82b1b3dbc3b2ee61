"""
Seconds of a fused attention kernel: useful FLOP over an efficiency that rises with the length of the sequence.

``efficiency * S/(S + ramp) * S/(S + block)``, the second factor only if causal (blocks on the diagonal are half wasted,
and the ramp counts twice), and a wave term over blocks of queries. Fitted on the published FlashAttention charts.
"""

from __future__ import annotations

from math import ceil

from trainsim.costs.types import Cost
from trainsim.hardware.gpu import GPU
from trainsim.hardware.kernel_constants import AttentionConstants, Curve
from trainsim.models.operations import Attention


def attention_cost(work: Attention, gpu: GPU) -> Cost:
    """Seconds alone and what it uses of the GPU; 16-bit arithmetic whatever the job's precision."""
    constants = gpu.kernels.attention
    curve, s = _curve(constants, work), work.reach
    efficiency = curve.efficiency * s / (s + curve.ramp * (2 if work.causal else 1)) * constants.sustained
    if work.causal:
        efficiency *= s / (s + curve.block)
    blocks = max(1.0, work.queries / constants.query_block)  # a part of a block takes as long as all of it
    waves = work.batch * work.heads * blocks / gpu.sms
    sharp = constants.wave_sharpness
    uneven = ((1 - sharp) * ceil(waves) + sharp * max(waves, 1.0)) / waves
    seconds = work.flops * uneven / (gpu.half_peak * efficiency) + constants.overhead[work.direction]
    memory = _bytes(work) / gpu.memory_bandwidth
    return Cost(max(seconds, memory), min(1.0, waves), min(1.0, memory / seconds))


def _curve(constants: AttentionConstants, work: Attention) -> Curve:
    sizes = constants.curves.get(work.kernel) or constants.curves[constants.fallback]
    size_of_head = (work.head_dim + work.values) / 2
    nearest = min(sizes, key=lambda size: (abs(size - size_of_head), -size))
    return sizes[nearest]


def _bytes(work: Attention) -> float:
    """Queries, output (and their gradients) once, keys and values once, in 16 bits."""
    numbers = work.head_dim + work.values
    once = 2.0 * work.batch * numbers * (work.heads * work.queries + work.kv_heads * work.keys)
    return once * (2.0 if work.direction == "backward" else 1.0)
