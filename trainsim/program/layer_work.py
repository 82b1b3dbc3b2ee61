"""
How a job runs its layers: what a rank works on, with which kernels, and how many of them the host launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainsim.contracts.job import Job
from trainsim.frameworks.fused import FUSED
from trainsim.models.layer_kind import LayerKind
from trainsim.models.layers import Shape, Style, layer_operations, style_of
from trainsim.models.operations import launched
from trainsim.program.states import gradient_bytes
from trainsim.schedules.lookup import slices_of
from trainsim.sharding import strategies

PLAIN: Mapping[str, Any] = {
    **dict.fromkeys(("lora", "moe", "mla", "attention_softcap", "window", "chunk")),
    **dict.fromkeys(("parallel_residual", "shared_norm", "post_norms", "cross_attention"), False),
    "qk_norm": "none",
}
"""A plain layer: one of which a framework's profile counts the kernels has none of these."""


def shape_of(job: Job) -> Shape:
    """What a rank works on: a microbatch, or a slice of one that nothing comes before."""
    training, parallel = job.training, job.parallel
    return Shape(
        micro_batch=training.micro_batch,
        sequence_length=training.sequence_length // slices_of(job.pipeline.schedule, job.pipeline.group),
        tp=parallel.tp,
        cp=parallel.cp,
        context_parallel=parallel.context_parallel,
        ulysses=parallel.ulysses,
        sequence_parallel=parallel.sequence_parallel,
        precision=training.precision,
        autocast=training.autocast,
        padded_vocab=job.padded_vocab,
        decoder_length=training.decoder_length,
        document=training.document,
    )


def style_for(job: Job) -> Style:
    """The framework's kernels; sums of another type than its own take other traffic where a kernel of its own adds, and
    where replicas share the sums each adds its part."""
    style = style_of(job.framework, job.training.attention)
    modules, parallel_loss = job.training.recompute_modules, job.training.loss_parallel
    policy = job.training.recompute_policy or style.selective
    style = replace(style, selective=policy, recompute_modules=modules, loss_parallel=parallel_loss)
    style = replace(style, frozen_gathered=strategies[job.sharding.strategy].shares_parameters)
    if strategies[job.sharding.strategy].every_pass and job.parallel.pp == 1:
        style = replace(style, weight_gradients="none")  # the strategy counts them
    style = replace(style, casts_kept=job.training.autocast and not job.framework.memory.states.cast_copy)
    nbytes = style.accumulation_bytes
    if job.training.accumulation_dtype is not None and nbytes:
        nbytes = job.training.number_bytes + 2 * gradient_bytes(job)
    return replace(style, accumulation_bytes=nbytes / strategies[job.sharding.strategy].summed_by(job))


def launches_of(job: Job, kind: LayerKind, shape: Shape, style: Style) -> dict[str, int]:
    """Kernels that the host launches per layer, forward and backward, as the framework's profile counts them for
    one of a GPT or Llama: adapters, experts, parts of a sequence, vectors of latent attention, further norms, a second
    attention and operations that are not fused add theirs, frozen weights need none."""
    out = {"forward": job.framework.host.operations_forward, "backward": job.framework.host.operations_backward}
    plain = replace(kind, **PLAIN)
    if plain != kind or shape.cp > 1 or style.fused != FUSED:
        usual = layer_operations(plain, replace(shape, cp=1), replace(style, fused=FUSED))
        counts = [
            Counter(
                forward=sum(launched(o.forward) for o in operations),
                backward=sum(launched((*o.input_gradient, *o.weight_gradient)) for o in operations),
            )
            for operations in (layer_operations(kind, shape, style), usual)
        ]
        out = {key: max(0, number + counts[0][key] - counts[1][key]) for key, number in out.items()}
    if kind.moe is not None and not job.training.routing.pad_to_capacity:
        waits = job.framework.host.operations_routed
        out = {"forward": out["forward"] + waits, "backward": out["backward"] + 2 * waits}
    return out


def head_launches(job: Job, shape: Shape, style: Style) -> dict[str, int]:
    """Kernels that the host launches for the head: as many as for a plain layer, and those of layers that predict
    tokens further on."""
    kind = replace(job.model.kind, **{key: value for key, value in PLAIN.items() if key != "lora"})
    out = launches_of(job, kind, replace(shape, cp=1), style)
    if job.model.mtp_layers:
        further = launches_of(job, job.model.kinds[-1], shape, style)
        out = {key: number + 2 * job.model.mtp_layers * further[key] for key, number in out.items()}
    return out


def mask_bytes(job: Job) -> float:
    """Bytes of a mask of all pairs of tokens, if the framework makes one: a byte each, whole on every rank."""
    return float(job.training.sequence_length**2) if job.training.attention_mask != "none" else 0.0


def mask_bytes_made(job: Job) -> float:
    """Bytes while the GPU makes it: two tensors of single-precision numbers (Megatron-LM, megatron/utils.py)."""
    return 8.0 * mask_bytes(job) if job.training.attention_mask == "gpu" else 0.0
