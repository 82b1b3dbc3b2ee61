"""From a scenario to a job: every value that was left out is derived, and every rule is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainsim.contracts.job import Job, Parallel, Pipeline, Training
from trainsim.errors import NotBuilt
from trainsim.frameworks import Framework
from trainsim.models.layer_kind import counted
from trainsim.models.transformer import Transformer, padded_vocab
from trainsim.scenario import checks, layout
from trainsim.scenario.activation_rules import check_activations
from trainsim.scenario.context import Context, carried
from trainsim.scenario.context_rules import check_context_parallel, resolve_neighbours, resolve_way
from trainsim.scenario.faults import with_faults
from trainsim.scenario.frozen_rules import check_frozen
from trainsim.scenario.jitter import find_jitter
from trainsim.scenario.limits import limits, model_limits
from trainsim.scenario.modes import check_modes, with_graphs
from trainsim.scenario.named import find_cluster, find_framework, find_model, schedule_path
from trainsim.scenario.network_choice import chosen_algorithms
from trainsim.scenario.overlap import overlapping_schedule
from trainsim.scenario.pace import with_pace
from trainsim.scenario.perturbations import perturbations
from trainsim.scenario.placement import find_allocation, find_background
from trainsim.scenario.rollout import check_rollout
from trainsim.scenario.routing import expert_parallel
from trainsim.scenario.sharding_rules import check_sharding
from trainsim.scenario.sharding_values import resolve_sharding, with_framework
from trainsim.scenario.tensor_parallel import uneven_sequence
from trainsim.scenario.training import length_in, resolve_training
from trainsim.scenario.without_effect import note_without_effect
from trainsim.scenario.written import written_out
from trainsim.schedules import schedules
from trainsim.schedules.lookup import check_numbers, facts, is_file, slices_of
from trainsim.units import format_layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A job, and the scenario with every value written out; ``values["derived"]`` says what was derived from what."""

    job: Job
    values: Mapping[str, Any]


def resolve(context: Context) -> Resolved:
    """The job that a scenario means.

    Raises ScenarioError for unknown names, NotBuilt for what this version cannot simulate and InvalidPlan for
    numbers that do not divide or multiply out.
    """
    context = with_framework(context)
    for fault in limits(context.spec):
        context.require(fault, NotBuilt)
    spec = context.spec
    model, cluster = find_model(context), find_cluster(context)
    framework = with_pace(context, with_graphs(context, find_framework(context)), cluster)
    for fault in model_limits(model, spec):
        context.require(fault, NotBuilt)
    allocation = find_allocation(context, cluster)
    cluster = with_faults(context, cluster, allocation)
    gpus = allocation.ranks(cluster.ranks)
    parallel = _parallel(context, model, framework, gpus=gpus, gpus_per_node=cluster.gpus_per_node)
    training = resolve_training(context, model, cluster, framework, parallel)
    spreads = spec.pipeline.vocabulary_parallel
    pipeline = _pipeline(context, model, parallel, training)
    job = Job(
        name=spec.name or f"{model.name} on {gpus} {cluster.gpu.name}",
        model=model,
        padded_vocab=padded_vocab(
            model.vocab, parallel.tp * (parallel.pp if spreads else 1), framework.kernels.vocab_multiple
        ),
        cluster=cluster,
        framework=framework,
        parallel=parallel,
        pipeline=pipeline,
        sharding=resolve_sharding(context, framework, cluster, parallel, pipeline.schedule, model.hidden),
        training=training,
        allocation=allocation,
        background=find_background(context, cluster),
        algorithm=chosen_algorithms(context),
        what_if=perturbations(context, cluster, allocation, flushes=not facts(pipeline.schedule).asynchronous),
        **carried(spec.simulation, Job) | {"jitter": find_jitter(context, gpus)},
    )
    _check(context, job)
    return Resolved(job=job, values=written_out(context, job))


def _check(context: Context, job: Job) -> None:
    """Raise for what does not go together in a job, and note what is worth knowing of the rest."""
    checks_of = (check_context_parallel, check_sharding, check_rollout, check_frozen, check_activations, check_modes)
    for check in checks_of:
        check(context, job)
    note_without_effect(context, job)
    _note_vocabulary(context, job)


def _note_vocabulary(context: Context, job: Job) -> None:
    """Why the table of tokens has more rows than there are tokens, if it has."""
    if job.padded_vocab != job.model.vocab:
        rule, pp = job.framework.kernels.vocab_multiple, job.parallel.pp
        factors = [str(rule)] * (rule > 1) + [f"tp {job.parallel.tp}"]
        factors += [f"pp {pp}"] * context.spec.pipeline.vocabulary_parallel
        reason = f"{job.model.vocab} rounded up to a multiple of {' x '.join(factors)}"
        context.derived("model.padded_vocab", job.padded_vocab, reason)


def _divides_over_tp(context: Context, model: Transformer, framework: Framework) -> None:
    """Raise what tensor parallelism cannot cut, layer by layer of another kind."""
    spec, training = context.spec.parallel, context.spec.training
    for kind in counted(model.kinds):
        length = length_in(kind, training, model)
        padded = uneven_sequence(context, framework, length)
        context.require(
            checks.tensor_parallel(
                tp=spec.tp,
                heads=kind.heads,
                kv_heads=kind.kv_heads,
                ffn_hidden=kind.ffn_hidden,
                sequence_length=length,
                sequence_parallel=spec.sequence_parallel and not padded,
            )
        )


def _parallel(context: Context, model: Transformer, framework: Framework, *, gpus: int, gpus_per_node: int) -> Parallel:
    spec = context.spec.parallel
    _divides_over_tp(context, model, framework)
    context.require(
        checks.product(
            tp=spec.tp,
            pp=spec.pp,
            cp=spec.cp,
            dp=spec.dp,
            gpus=gpus,
            gpus_per_node=gpus_per_node,
        )
    )
    dp = spec.dp or gpus // (spec.tp * spec.pp * spec.cp)
    if spec.dp is None:
        shape = f"tp {spec.tp} x pp {spec.pp}" + (f" x cp {spec.cp}" if spec.cp > 1 else "")
        context.derived("parallel.dp", dp, f"{gpus} GPUs / ({shape})")
    if sorted(spec.order) != ["cp", "dp", "ep", "pp", "tp"]:
        context.require(checks.Fault("parallel.order", "expected each of tp, cp, ep, dp, pp once, innermost first"))
    etp = spec.etp or (spec.tp if model.has_experts else 1)
    resolved = {
        "dp": dp,
        "etp": etp,
        "sequence_parallel": spec.sequence_parallel and spec.tp > 1,
        "context_parallel": resolve_way(context),
        "ulysses": resolve_neighbours(context, model, gpus_per_node),
    }
    parallel = Parallel(**{**carried(spec, Parallel), **resolved})
    context.require(expert_parallel(model, parallel))
    return parallel


def _pipeline(context: Context, model: Transformer, parallel: Parallel, training: Training) -> Pipeline:
    spec = context.spec.pipeline
    name = spec.schedule or ("interleaved-1f1b" if spec.chunks > 1 else "1f1b")
    if not spec.schedule:
        context.derived("pipeline.schedule", name, f"chunks {spec.chunks}")
    with context.at("pipeline.schedule"):
        name = schedule_path(name, context.origin.folder) if is_file(name) else schedules.canonical(name)
    name = overlapping_schedule(context, name, model=model, parallel=parallel, training=training)
    with context.at("pipeline.schedule"):
        shape, chunks = facts(name), spec.chunks
    if shape.chunks is not None and "chunks" not in spec.model_fields_set and shape.chunks != chunks:
        chunks = shape.chunks
        context.derived("pipeline.chunks", chunks, f"as {name} needs")
    with context.at("pipeline"):
        check_numbers(name, parallel.pp, microbatches=training.microbatches, chunks=chunks, group=spec.group)
    context.require(
        checks.slices(
            sequence_length=training.sequence_length,
            slices=slices_of(name, spec.group),
            tp=parallel.tp if parallel.sequence_parallel else 1,
        )
    )
    stages = _layout(context, model, parallel.pp, chunks // shape.replicas)
    context.require(checks.recomputed_layers(layers=training.recompute_layers, layout=stages))
    resolved = {
        "schedule": name,
        "chunks": chunks,
        "layout": stages,
        "p2p": spec.p2p or "async",
        "vocabulary_parallel": spec.vocabulary_parallel and parallel.pp > 1,
    }
    return Pipeline(**{**carried(spec, Pipeline), **resolved})


def _layout(context: Context, model: Transformer, pp: int, chunks: int) -> tuple[int, ...]:
    spec = context.spec.pipeline
    sizes: dict[str, int] = {"layers": model.layers, "pp": pp, "chunks": chunks}
    if spec.layout is None:
        balanced = layout.derive(**sizes)
        if isinstance(balanced, checks.Fault):
            context.require(balanced)
            raise AssertionError
        stages, reason = balanced
        context.derived("pipeline.layout", format_layout(stages), reason)
        return stages
    given = layout.parse(spec.layout) if isinstance(spec.layout, str) else spec.layout
    if isinstance(given, checks.Fault):
        context.require(given)
        raise AssertionError
    context.require(layout.check(given, **sizes))
    return given
