"""What a rank works on, and how many kernels the host launches for a layer of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainsim.contracts.job import Job
from trainsim.frameworks.fused import FUSED
from trainsim.models.layer_kind import LayerKind
from trainsim.models.layers import Shape, Style, layer_operations
from trainsim.models.operations import launched
from trainsim.models.tensors import layer_tensors
from trainsim.schedules.lookup import slices_of
from trainsim.sharding import strategies
from trainsim.sharding.tensorwise import whole

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
        fp8_recipe=training.fp8_recipe,
        transposed_copies=job.cluster.gpu.kernels.gemm.transposed_copies,
        autocast=training.autocast,
        padded_vocab=job.padded_vocab,
        decoder_length=training.decoder_length,
        document=training.document,
    )


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


def hook_seconds(job: Job, kind: LayerKind) -> float:
    """Seconds of the host in a backward of one layer for hooks of its gradients (DeepSpeed's, in Python): one per
    trained tensor, which may look at all of this rank's."""
    host, sharding = job.framework.host, strategies[job.sharding.strategy]
    if not sharding.shares:
        return 0.0
    everywhere = len(whole(job).ready) / job.parallel.pp
    here = 2 * len(kind.lora.targets) if kind.lora is not None else len(layer_tensors(kind, job.parallel.tp))
    return here * (host.seconds_per_hook + everywhere * host.seconds_per_counted_tensor)
