"""A resolved scenario as plain values, complete, readable by a person and readable again as a scenario."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from trainsim.contracts.job import Jitter, Job, Training
from trainsim.scenario.context import Context
from trainsim.scenario.gradients import gradient_dtype
from trainsim.scenario.named import written_names
from trainsim.scenario.placement import written_placement
from trainsim.scenario.schema import ClusterSpec, SimulationSpec
from trainsim.scenario.sharding_section import ShardingSpec


def written_out(context: Context, job: Job) -> dict[str, Any]:
    """Every section with nothing left out; ``derived`` says, by key, what was derived and from what.

    What the job has under the name of a field is the field's value, else what the scenario says; the exceptions are
    those that the job keeps in another form.
    """
    spec, names = context.spec, written_names(context.spec, context.origin)
    return {
        "name": job.name,
        "framework": names["framework"],
        "model": job.model.to_dict(),
        "cluster": {**_cluster(spec.cluster, job, context.origin.folder), **_within("cluster", names)},
        "parallel": _section(spec.parallel, job.parallel),
        "pipeline": _section(spec.pipeline, job.pipeline),
        "sharding": _sharding(spec.sharding, job),
        "training": {**_section(spec.training, job.training), **_training(context, job), **_within("training", names)},
        "network": spec.network.model_dump(),
        "what_if": [entry.model_dump(exclude_unset=True) for entry in spec.what_if],
        "simulation": _simulation(spec.simulation, job),
        "derived": dict(context.notes),
    }


def _cluster(spec: ClusterSpec, job: Job, folder: Path) -> dict[str, Any]:
    """The machine with its nodes; GPUs in all are written as nodes and the GPUs of each."""
    values = spec.model_dump(exclude_none=True, exclude={"gpus"})
    if (hosts := written_placement(spec, folder)) is not None:
        values["placement"] = list(hosts)
    part = {} if spec.gpus is None else {"gpus_per_node": job.cluster.gpus_per_node}
    return {**values, **part, "nodes": job.cluster.nodes}


def _section(spec: BaseModel, resolved: object) -> dict[str, Any]:
    """A section of the scenario with the values that were resolved."""
    values = {key: getattr(resolved, key, getattr(spec, key)) for key in type(spec).model_fields}
    return {key: _plain(v) for key, v in values.items() if v is not None}


def _plain(value: Any) -> Any:
    """A value as a file would have it."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    return list(value) if isinstance(value, tuple) else value


def _training(context: Context, job: Job) -> dict[str, Any]:
    """What the job keeps in another form than the scenario."""
    spec, training = context.spec.training, job.training
    some: dict[str, Any] = {"layers": training.recompute_layers, "modules": list(training.recompute_modules)}
    every = training.recompute_every if training.recompute_every > 1 else None
    some |= {"every": every, "policy": training.recompute_policy}
    parts = {key: value for key, value in some.items() if value}
    return {
        "gradient_dtype": spec.gradient_dtype
        or spec.gradients
        or gradient_dtype(training.gradient_bytes, training.precision),
        "loss_scaling": spec.loss_scaling,
        "sequence_length": training.padded_from or training.sequence_length,
        "cross_entropy": _cross_entropy(training),
        **({} if training.rollout is None else {"rollout": _given(asdict(training.rollout))}),
        "recompute": {"mode": training.recompute, **parts} if parts else training.recompute,
    }


def _cross_entropy(training: Training) -> Any:
    """How the loss is made, with the chunks that were given."""
    kind, chunks = training.cross_entropy, training.loss_chunks
    return {"kind": kind, "chunks": chunks} if chunks else kind


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """*values* without those that nobody gave."""
    return {key: value for key, value in values.items() if value is not None}


def _simulation(spec: SimulationSpec, job: Job) -> dict[str, Any]:
    """How it runs, with what is drawn at random if anything was said of that."""
    values = _section(spec, job)
    del values["jitter"]
    return values if job.jitter == Jitter() else {**values, "jitter": _given(asdict(job.jitter))}


def _within(section: str, names: dict[str, Any]) -> dict[str, Any]:
    """Those of *names* that stand in *section*, by their own key."""
    return {key.removeprefix(f"{section}."): value for key, value in names.items() if key.startswith(f"{section}.")}


def _sharding(spec: ShardingSpec, job: Job) -> dict[str, Any]:
    """What the scenario says of sharding, and what the strategy itself brings: groups, ZeRO++'s three."""
    given: dict[str, Any] = spec.model_dump(exclude={"strategy", "overlap"}, exclude_unset=True)
    return {"strategy": job.sharding.strategy, "overlap": job.sharding.overlap, **given, **job.sharding.options}
