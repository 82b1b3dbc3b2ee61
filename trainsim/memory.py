"""
Well-known memory estimators to compare with the simulation: DeepSpeed's, Megatron-LM's and those of two papers.

>>> import trainsim as ts
>>> ts.memory.deepspeed_zero_estimate(3, 7.5e9, largest_layer_parameters=205e6, gpus_per_node=8, nodes=64)
ZeroEstimate(cpu_bytes_per_node=9840000000, gpu_bytes_per_gpu=1083671875)

They are closed forms, each of a part of what a GPU holds; ``differences`` says of which. A scenario's own memory is
``Result.memory``.
"""

from __future__ import annotations

from trainsim.estimators.deepspeed import ZeroEstimate, deepspeed_zero_estimate
from trainsim.estimators.differences import Difference, differences
from trainsim.estimators.megatron import MegatronMemory, megatron_theoretical
from trainsim.estimators.papers import (
    FirstStage,
    LayerActivations,
    ZeroTable,
    korthikanti_activations,
    korthikanti_states,
    zero_table,
)

__all__ = [
    "Difference",
    "FirstStage",
    "LayerActivations",
    "MegatronMemory",
    "ZeroEstimate",
    "ZeroTable",
    "deepspeed_zero_estimate",
    "differences",
    "korthikanti_activations",
    "korthikanti_states",
    "megatron_theoretical",
    "zero_table",
]
