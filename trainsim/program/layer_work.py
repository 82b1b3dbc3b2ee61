"""
How a job runs its layers: with which kernels, and how many of them the host launches for the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainsim.contracts.job import Job
from trainsim.models.layers import Shape, Style, head_operations, style_of
from trainsim.models.operations import Operation, launched
from trainsim.sharding import strategies
from trainsim.sharding.launches import PLAIN, launches_of


def style_for(job: Job) -> Style:
    """The framework's kernels; sums of another type than its own take other traffic where a kernel of its own adds, and
    where replicas share the sums each adds its part."""
    training, strategy = job.training, strategies[job.sharding.strategy]
    style = style_of(job.framework, training.attention)
    nbytes = style.accumulation_bytes
    if training.accumulation_dtype is not None and nbytes:
        nbytes = training.number_bytes + 2 * job.sum_bytes
    if training.optimizer_in_backward:
        nbytes = 0.0  # nothing is summed
    counted = strategy.every_pass and job.parallel.pp == 1  # by the strategy
    return replace(
        style,
        selective=training.recompute_policy or style.selective,
        recompute_modules=training.recompute_modules,
        loss_parallel=training.loss_parallel,
        frozen_gathered=strategy.shares_parameters,
        cross_entropy=training.cross_entropy,
        loss_chunks=training.loss_chunks,
        weight_gradients="none" if counted else style.weight_gradients,
        casts_kept=training.autocast and not job.framework.memory.states.cast_copy,
        accumulation_bytes=nbytes / strategy.summed_by(job),
    )


def head_launches(job: Job, shape: Shape, style: Style) -> dict[str, int]:
    """Kernels that the host launches for the head: as many as for a plain layer, and those of layers that predict
    tokens further on; a loss in chunks has some for each."""
    kind = replace(job.model.kind, **{key: value for key, value in PLAIN.items() if key != "lora"})
    out = launches_of(job, kind, replace(shape, cp=1), style)
    if job.model.mtp_layers:
        further = launches_of(job, job.model.kinds[-1], shape, style)
        out = {key: number + 2 * job.model.mtp_layers * further[key] for key, number in out.items()}
    if style.cross_entropy != "standard":
        here = _kernels(head_operations(job.model, shape, style))
        usual = _kernels(head_operations(job.model, shape, replace(style, cross_entropy="standard")))
        out = {key: max(0, number + here[key] - usual[key]) for key, number in out.items()}
    return out


def _kernels(operations: Sequence[Operation]) -> dict[str, int]:
    """Kernels of some operations, forward and backward."""
    return {
        "forward": sum(launched(o.forward) for o in operations),
        "backward": sum(launched((*o.input_gradient, *o.weight_gradient)) for o in operations),
    }


def mask_bytes(job: Job) -> float:
    """Bytes of a mask of all pairs of tokens, if the framework makes one: a byte each, whole on every rank."""
    return float(job.training.sequence_length**2) if job.training.attention_mask != "none" else 0.0


def mask_bytes_made(job: Job) -> float:
    """Bytes while the GPU makes it: two tensors of single-precision numbers (Megatron-LM, megatron/utils.py)."""
    return 8.0 * mask_bytes(job) if job.training.attention_mask == "gpu" else 0.0
