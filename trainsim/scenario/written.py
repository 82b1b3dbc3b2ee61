"""A resolved scenario as plain values, complete, readable by a person and readable again as a scenario."""

from __future__ import annotations

from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.context import Context
from trainsim.scenario.named import written_names
from trainsim.scenario.sharding_section import ShardingSpec
from trainsim.scenario.training import gradient_dtype


def written_out(context: Context, job: Job) -> dict[str, Any]:
    """Every section with nothing left out; ``derived`` says, by key, what was derived and from what."""
    spec, parallel, names = context.spec, job.parallel, written_names(context.spec, context.origin)
    return {
        "name": job.name,
        "framework": names["framework"],
        "model": job.model.to_dict(),
        "cluster": {**spec.cluster.model_dump(), **_within("cluster", names), "nodes": job.cluster.nodes},
        "parallel": {
            **{axis: getattr(parallel, axis) for axis in ("tp", "pp", "dp", "cp", "ep")},
            "sequence_parallel": parallel.sequence_parallel,
            "order": list(parallel.order),
        },
        "pipeline": _pipeline(context, job),
        "sharding": _sharding(spec.sharding, job),
        "training": {**_training(context, job), **_within("training", names)},
        "network": {"algorithm": spec.network.algorithm},
        "what_if": [entry.model_dump(exclude_unset=True) for entry in spec.what_if],
        "simulation": {"detail": job.detail, "fold": job.fold, "steps": job.steps, "seed": job.seed},
        "derived": dict(context.notes),
    }


def _within(section: str, names: dict[str, Any]) -> dict[str, Any]:
    """Those of *names* that stand in *section*, by their own key."""
    return {key.removeprefix(f"{section}."): value for key, value in names.items() if key.startswith(f"{section}.")}


def _sharding(spec: ShardingSpec, job: Job) -> dict[str, Any]:
    """What the scenario says of sharding, and what the strategy itself brings: groups, ZeRO++'s three."""
    given: dict[str, Any] = spec.model_dump(exclude={"strategy", "overlap"}, exclude_unset=True)
    return {"strategy": job.sharding.strategy, "overlap": job.sharding.overlap, **given, **job.sharding.options}


def _pipeline(context: Context, job: Job) -> dict[str, Any]:
    spec, pipeline = context.spec.pipeline, job.pipeline
    return {
        "schedule": pipeline.schedule,
        "chunks": pipeline.chunks,
        "layout": list(pipeline.layout),
        **({"p2p": pipeline.p2p} if pipeline.p2p != "async" else {}),
        **({"group": pipeline.group} if pipeline.group else {}),
        **({"post_validation": True} if pipeline.post_validation else {}),
        **({"vocabulary_parallel": True} if spec.vocabulary_parallel else {}),
    }


def _training(context: Context, job: Job) -> dict[str, Any]:
    spec, training = context.spec.training, job.training
    partly = training.recompute_layers is not None
    return {
        "sequence_length": training.sequence_length,
        "micro_batch": training.micro_batch,
        "global_batch": training.global_batch,
        "precision": training.precision,
        "gradient_dtype": spec.gradient_dtype or gradient_dtype(training.gradient_bytes, training.precision),
        **({"accumulation_dtype": training.accumulation_dtype} if training.accumulation_dtype else {}),
        **({"loss_scaling": spec.loss_scaling} if training.precision == "fp16" else {}),
        "recompute": {"mode": "full", "layers": training.recompute_layers} if partly else training.recompute,
        "attention": training.attention,
        "tp_overlap": training.tp_overlap,
    }
