"""From ``training.rollout`` to a rollout: what is left out follows from training, and everything divides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job, Parallel
from trainsim.contracts.rollout import Rollout
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError
from trainsim.hardware.cluster import Cluster
from trainsim.models.layer_kind import counted
from trainsim.models.transformer import Transformer
from trainsim.scenario.checks import Fault, divisors, offer, tensor_parallel
from trainsim.scenario.context import Context
from trainsim.scenario.rollout_section import RolloutSpec
from trainsim.schedules.lookup import facts

KEY = "training.rollout"
OTHERWISE = {
    "moe": "experts",
    "mla": "latent attention",
    "linear_attention": "linear attention",
    "window": "sliding windows",
    "chunk": "attention within chunks",
    "cross_attention": "an encoder",
}
"""Traits of layers whose cache, or whose iterations, are other than those of dense decoders."""


def resolve_rollout(
    context: Context, model: Transformer, cluster: Cluster, parallel: Parallel, global_batch: int, *, length: int
) -> Rollout | None:
    """The rollout of the scenario; None where it has none. *length* is that of the sequences of training.

    Raises InvalidPlan for what does not divide or fit together.
    """
    spec = context.spec.training.rollout
    if spec is None:
        return None
    values: dict[str, Any] = spec.model_dump()
    if values["tp"] is None:
        values["tp"] = parallel.tp
        context.derived(f"{KEY}.tp", parallel.tp, "as in training")
    if values["samples"] is None:
        values["samples"] = global_batch
        context.derived(f"{KEY}.samples", global_batch, "training.global_batch")
    for key in ("prompt_micro_batches", "decode_micro_batches"):
        if values["pp"] == 1 and values[key] is not None:
            context.derived(f"{KEY}.{key}", values[key], "without effect: pp is 1")
    rollout = Rollout(**values)
    for fault in _length_faults(rollout, model, length):
        context.require(fault)
    for fault in _degree_faults(rollout, model, cluster, parallel):
        context.require(fault)
    for fault in _memory_faults(rollout, spec):
        context.require(fault, ScenarioError)
    return rollout


def check_rollout(context: Context, job: Job) -> None:
    """What a rollout does not go together with. Raises NotBuilt and InvalidPlan."""
    rollout = job.training.rollout
    if rollout is None:
        return
    for name, word in OTHERWISE.items():
        if any(getattr(kind, name) for kind in counted(job.model.kinds)):
            context.require(Fault(KEY, f"generation with {word} is not simulated yet; leave it out"), NotBuilt)
    if facts(job.pipeline.schedule).asynchronous:
        fault = Fault(KEY, f"{job.pipeline.schedule} does not flush between steps; 1f1b and others do")
        context.require(fault, InvalidPlan)
    if rollout.pp > 1 and rollout.separate:
        context.require(Fault(f"{KEY}.pp", "not simulated yet for separate engines; use a larger tp"), NotBuilt)
    offload = job.sharding.offload
    if offload.parameters != "none" or offload.delayed_update:
        what = "offload.delayed_update" if offload.delayed_update else "offload.parameters"
        context.require(Fault(KEY, f"not simulated yet with sharding.{what}; offload.optimizer is"), NotBuilt)
    if rollout.separate and not job.cluster.has_network:
        context.require(
            Fault(f"{KEY}.placement", f"{job.cluster.name} has no network to other nodes; colocated would work")
        )


def _length_faults(rollout: Rollout, model: Transformer, length: int) -> Iterator[Fault]:
    """Sequences are no longer than those that are trained on, or than the model's positions."""
    if rollout.length > length:
        yield Fault(
            f"{KEY}.response_length",
            f"a prompt of {rollout.prompt_length} tokens and a response of {rollout.response_length} do not fit into "
            f"training.sequence_length {length}; {rollout.length} would hold them",
        )


def _degree_faults(rollout: Rollout, model: Transformer, cluster: Cluster, parallel: Parallel) -> Iterator[Fault]:
    """Heads, layers, GPUs and samples are divided evenly."""
    for kind in counted(model.kinds):
        fault = tensor_parallel(
            tp=rollout.tp, heads=kind.heads, kv_heads=kind.kv_heads, ffn_hidden=kind.ffn_hidden,
            sequence_length=rollout.length, sequence_parallel=False,
        )  # fmt: skip
        if fault:
            yield Fault(f"{KEY}.tp", fault.message)
    if rollout.pp > model.layers:
        yield Fault(f"{KEY}.pp", f"{model.layers} layers cannot be split into {rollout.pp} stages")
    if rollout.separate and rollout.nodes is None:
        yield Fault(f"{KEY}.placement", "separate engines need nodes of their own; say how many: nodes: 1")
    if not rollout.separate and rollout.nodes is not None:
        yield Fault(f"{KEY}.nodes", "colocated engines run on the nodes of training; placement: separate has its own")
    if not rollout.separate and rollout.asynchronous:
        yield Fault(f"{KEY}.asynchronous", "engines and training take turns on the same GPUs; placement: separate")
    gpus = parallel.ranks if rollout.nodes is None else rollout.nodes * cluster.gpus_per_node
    each = rollout.tp * rollout.pp
    if gpus % each:
        works = offer([d for d in divisors(gpus) if gpus % (d * rollout.pp) == 0], rollout.tp, "tp")
        yield Fault(f"{KEY}.tp", f"engines of tp {rollout.tp} x pp {rollout.pp} GPUs do not divide {gpus}; {works}")
    elif rollout.samples % (gpus // each):
        engines = gpus // each
        below = rollout.samples // engines * engines
        works = offer([n for n in (below, below + engines) if n], rollout.samples, "samples")
        yield Fault(f"{KEY}.samples", f"{rollout.samples} sequences are not divisible by {engines} engines; {works}")


def _memory_faults(rollout: Rollout, spec: RolloutSpec) -> Iterator[Fault]:
    """What stays while training is said once."""
    if not rollout.sleep and rollout.gpu_memory_utilization is None and not rollout.separate:
        yield Fault(
            f"{KEY}.sleep",
            "false: the engine keeps its memory while training; give its share, such as gpu_memory_utilization: 0.4",
        )
    if "block_size" in spec.model_fields_set and rollout.kv_cache == "contiguous":
        yield Fault(f"{KEY}.block_size", "a contiguous cache has no blocks; leave it out, or kv_cache: paged")
