"""The training section: lengths, batches, numbers and what is recomputed."""

from __future__ import annotations

from trainsim.contracts.job import Parallel, Training
from trainsim.documents.origin import value_at
from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.hardware.cluster import Cluster
from trainsim.models.layer_kind import LayerKind
from trainsim.models.transformer import Transformer
from trainsim.scenario import checks
from trainsim.scenario.attention import attention_kernel
from trainsim.scenario.autocast import resolve_autocast
from trainsim.scenario.batches import resolve_batches
from trainsim.scenario.context import Context
from trainsim.scenario.documents import resolve_documents
from trainsim.scenario.fields import short_length
from trainsim.scenario.fp8_recipe import fp8_recipe
from trainsim.scenario.gradients import accumulation_dtype, wire_bytes
from trainsim.scenario.loss import resolve_loss
from trainsim.scenario.named import find_optimizer
from trainsim.scenario.recomputation import resolve_recompute
from trainsim.scenario.rollout import resolve_rollout
from trainsim.scenario.routing import resolve_routing
from trainsim.scenario.schema import TrainingSpec
from trainsim.scenario.tensor_parallel import parallel_loss, tensor_overlap

USUAL_SEQUENCE = 2048  # tokens, where neither scenario nor model says


def resolve_training(
    context: Context, model: Transformer, cluster: Cluster, framework: Framework, parallel: Parallel
) -> Training:
    """Batches that divide, and what the framework does where the scenario does not say."""
    spec = context.spec.training
    missing = checks.units(precision=spec.precision, known=cluster.gpu.flops, gpu=cluster.gpu.name)
    context.require(missing, ScenarioError)
    sequence_length = _sequence_length(context, model, parallel)
    batches = resolve_batches(context, parallel)
    sequences = resolve_documents(context, model, parallel, batches, sequence_length)
    mode, recompute_parts = resolve_recompute(context)
    return Training(
        sequence_length=sequences.length,
        padded_from=sequences.asked,
        decoder_length=_decoder_length(context, model, sequence_length),
        document=sequences.document,
        **batches._asdict(),
        tokens=spec.tokens,
        precision=spec.precision,
        fp8_recipe=fp8_recipe(context, framework),
        autocast=resolve_autocast(context, framework),
        gradient_bytes=wire_bytes(context, framework),
        accumulation_dtype=accumulation_dtype(context),
        optimizer=find_optimizer(context),
        optimizer_in_backward=spec.optimizer_in_backward,
        recompute=mode,
        **recompute_parts,
        activation_offload=spec.activation_offload,
        attention=attention_kernel(context, framework, cluster.gpu),
        attention_mask=spec.attention_mask,
        tp_overlap=tensor_overlap(context, framework, parallel),
        routing=resolve_routing(context, model, framework, modules=recompute_parts.get("recompute_modules", ())),
        moe_overlap=spec.moe_overlap,
        delay_wgrad=spec.delay_wgrad,
        loss_parallel=parallel_loss(context, framework),
        kept_logits=spec.kept_logits,
        **resolve_loss(context),
        loss_scaling=spec.precision == "fp16" and spec.loss_scaling == "dynamic",
        rollout=resolve_rollout(context, model, cluster, parallel, batches.global_batch, length=sequence_length),
    )


def _sequence_length(context: Context, model: Transformer, parallel: Parallel) -> int:
    """Tokens of a sequence, as many as the model has positions for and the ranks can cut."""
    length = context.spec.training.sequence_length
    rollout = context.spec.training.rollout
    if length is None and rollout is not None:
        length = rollout.prompt_length + rollout.response_length
        context.derived("training.sequence_length", length, "a prompt and its response")
    elif length is None:
        length = usual_length(model)
        context.derived("training.sequence_length", length, "not given")
    _note_length(context, length)
    learned = model.positions == "learned"
    context.require(checks.positions(sequence_length=length, learned=learned, max_positions=model.max_positions))
    context.require(checks.sequences(sequence_length=length, cp=parallel.cp))
    return length


def _decoder_length(context: Context, model: Transformer, sequence_length: int) -> int | None:
    """Tokens in the decoder: as many as in the encoder, if there is one and nothing else is said."""
    given = context.spec.training.decoder_length
    if not model.encoder_layers:
        if given is not None:
            context.derived("training.decoder_length", given, "without effect: the model has no encoder")
        return None
    if given is None:
        context.derived("training.decoder_length", sequence_length, "not given: as sequence_length")
    return given or sequence_length


def _note_length(context: Context, length: int) -> None:
    """What a length that was written with a prefix was read as."""
    written = value_at(context.data, ("training", "sequence_length"))
    if short_length(written):
        reason = f"{written} tokens, in which k is 1,024; write the number if another one is meant"
        context.derived("training.sequence_length", length, reason)


def usual_length(model: Transformer) -> int:
    """Tokens of a sequence, where the scenario does not say: as many as usual, if the model has the positions."""
    return min(model.max_positions or USUAL_SEQUENCE, USUAL_SEQUENCE)


def length_in(kind: LayerKind, spec: TrainingSpec, model: Transformer) -> int:
    """Tokens of a sequence in a layer: a decoder behind an encoder has its own."""
    own = spec.decoder_length if kind.cross_attention else None
    return own or spec.sequence_length or usual_length(model)
