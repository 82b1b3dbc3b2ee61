"""
What DeepSpeed's own estimators of ZeRO-2 and ZeRO-3 model states print, to the byte.

Both count parameters, gradients and Adam's states in mixed precision and nothing else. Their CPU figure is the most
that loading or offloading needs on one node, times a factor for buffers; products are taken in the tool's order, so
that the last byte agrees.
"""

from __future__ import annotations

from typing import NamedTuple

from trainsim.errors import InvalidPlan
from trainsim.estimators.checked import choice, count, positive, switch, whole
from trainsim.units import Quantity

DEVICES = ("none", "cpu")


class ZeroEstimate(NamedTuple):
    """Bytes of model states: on the CPU of each node, and on each GPU."""

    cpu_bytes_per_node: int
    gpu_bytes_per_gpu: int


def deepspeed_zero_estimate(
    stage: int,
    total_parameters: Quantity,
    *,
    largest_layer_parameters: Quantity | None = None,
    gpus_per_node: int = 1,
    nodes: int = 1,
    offload_optimizer: str | None = "none",
    offload_parameters: str | None = "none",
    zero_init: bool = True,
    additional_buffer_factor: float = 1.5,
) -> ZeroEstimate:
    """Bytes that DeepSpeed's estimator of ZeRO *stage* (2 or 3) prints for model states.

    *largest_layer_parameters* are those of the largest single module and only stage 3 looks at them. Stage 2 has no
    ``zero_init``, and stage 3 looks at *offload_parameters* only where the optimizer is offloaded too; both are so in
    the tool. (DeepSpeed's documentation still shows 4 + 16/N bytes per parameter for stage 2; its code has 2 + 18/N.)
    Raises InvalidPlan for a stage that has no estimator and for numbers that make no sense.
    Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py, DeepSpeed 0.19.8.

    >>> deepspeed_zero_estimate(3, 2851e6, largest_layer_parameters=32e6, gpus_per_node=4).gpu_bytes_per_gpu
    12957500000
    >>> cpu, gpu = deepspeed_zero_estimate(2, "2851M", gpus_per_node=8)
    >>> gpu / 2851e6 == 2 + 18 / 8
    True
    """
    total = count("total_parameters", total_parameters)
    gpus, nodes = whole("gpus_per_node", gpus_per_node), whole("nodes", nodes)
    factor = positive("additional_buffer_factor", additional_buffer_factor)
    optimizer = choice("offload_optimizer", offload_optimizer or "none", DEVICES) == "cpu"
    parameters = choice("offload_parameters", offload_parameters or "none", DEVICES) == "cpu"
    partitioned = switch("zero_init", zero_init)
    match _stage(stage):
        case 2 if parameters:
            raise InvalidPlan(
                "offload_parameters = 'cpu': ZeRO-2 keeps the parameters on every GPU; that needs stage 3"
            )
        case 2:
            return _stage2(total, gpus, nodes, offload=optimizer, factor=factor)
    if largest_layer_parameters is None:
        raise InvalidPlan("ZeRO-3 gathers a module at a time: give largest_layer_parameters, of the largest module")
    largest = count("largest_layer_parameters", largest_layer_parameters)
    resident = (18 if parameters else 16) if optimizer else None
    return _stage3(total, largest, gpus, nodes, resident=resident, zero_init=partitioned, factor=factor)


def _stage(stage: object) -> int:
    number = whole("stage", stage, least=0)
    if number in (0, 1):
        raise InvalidPlan(
            f"stage = {stage!r}: DeepSpeed has no estimator for it, only for 2 and 3. Use trainsim.memory.zero_table("
            "parameters, replicas), whose `baseline` is stage 0 and whose `pos` is stage 1, or run a scenario with "
            "sharding.strategy: zero1"
        )
    if number > 3:
        raise InvalidPlan(f"stage = {stage!r}: ZeRO has stages 1 to 3, and DeepSpeed's estimators are for 2 and 3")
    return number


def _stage2(total: int, gpus: int, nodes: int, *, offload: bool, factor: float) -> ZeroEstimate:
    """Per node, yet it grows with all GPUs of the job where the optimizer is offloaded: that is what it prints."""
    ranks = gpus * nodes
    if offload:
        return ZeroEstimate(int(total * max(4 * ranks, 16) * factor), 2 * total)
    return ZeroEstimate(int(total * 4 * gpus * factor), 2 * total + int(18 * total / ranks))


def _stage3(
    total: int, largest: int, gpus: int, nodes: int, *, resident: int | None, zero_init: bool, factor: float
) -> ZeroEstimate:
    """*resident* bytes per parameter are on the CPUs, all nodes together; None: nothing is offloaded.

    Without ``zero_init`` every process of a node first loads the whole model in 32 bits.
    """
    module, ranks, share = 4 * largest, gpus * nodes, 1 / nodes
    if resident is None:
        cpu = (largest if zero_init else total) * 4 * gpus * factor
        return ZeroEstimate(int(cpu), module + int(18 * total / ranks))
    held = total * resident * share if zero_init else total * max(4 * gpus, resident * share)
    on_gpu = 0 if resident == 18 else int(2 * total / ranks)
    return ZeroEstimate(int(held * factor), module + on_gpu)
