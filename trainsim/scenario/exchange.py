"""The sharding section: which strategy, with which options, and what does not go together."""

from __future__ import annotations

from dataclasses import replace

from trainsim.contracts.job import Job, Offload, Parallel, Sharding
from trainsim.errors import NotBuilt
from trainsim.frameworks import Framework, load_framework
from trainsim.hardware.cluster import Cluster
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context, default
from trainsim.schedules.lookup import facts
from trainsim.sharding import strategies

ALWAYS = frozenset({"strategy", "overlap", "offload"})


def with_framework(context: Context) -> Context:
    """*context* with the framework whose strategy it is, where the scenario names none."""
    spec = context.spec
    if spec.framework is not None:
        return context
    name = strategies[spec.sharding.strategy].framework if spec.sharding.strategy else "neutral"
    if name != "neutral":
        context.derived("framework", name, f"whose {spec.sharding.strategy} is simulated")
    return replace(context, spec=spec.model_copy(update={"framework": name}))


def resolve_sharding(
    context: Context, framework: Framework, cluster: Cluster, parallel: Parallel, schedule: str
) -> Sharding:
    """The strategy and its options; groups of replicas have the size of a node where nothing else is said."""
    spec, whole = context.spec.sharding, facts(schedule).asynchronous
    strategy = spec.strategy
    if strategy is None:
        strategy = "zero1" if parallel.dp > 1 and not whole else "ddp"
        context.derived("sharding.strategy", strategy, f"as {schedule} needs" if whole else f"dp {parallel.dp}")
    elif whole and strategy != "ddp":
        message = f"{schedule} updates weights while others are in flight, which nobody can shard; ddp would work"
        context.require(Fault("sharding.strategy", message))
    sent = framework.communication
    usual = sent.zero3_overlap if strategies[strategy].shares_parameters else sent.gradient_overlap
    overlap = default(context, "sharding.overlap", spec.overlap, usual)
    given = spec.model_dump(exclude={"strategy", "overlap", "offload", "reshard_after_forward", "instances"})
    given |= _of_a_node(context, strategy, _node(cluster, parallel))
    if given["quantized_gradients"] and given["shard_size"] == parallel.dp * parallel.cp:
        reason = "without effect: all replicas are in one group, and gradients are quantized between groups only"
        context.derived("sharding.quantized_gradients", "true", reason)
    return Sharding(
        **given,
        strategy=strategy,
        overlap=overlap,
        instances=spec.instances or 1,
        reshard=None if spec.reshard_after_forward is None else _reshard(spec.reshard_after_forward),
        offload=Offload(**spec.offload.model_dump()),
    )


def _of_a_node(context: Context, strategy: str, node: int) -> dict[str, object]:
    """Options whose default is a node's replicas, and those that ZeRO++ turns on."""
    spec = context.spec.sharding
    out: dict[str, object] = {}
    uses, given = strategies[strategy].uses, spec.model_fields_set
    quantizes = spec.quantized_gradients or (strategy == "zeropp" and "quantized_gradients" not in given)
    if "shard_size" in uses and spec.shard_size is None and (quantizes or "quantized_gradients" not in uses):
        out["shard_size"] = node
        context.derived("sharding.shard_size", node, "replicas of a node")
    if strategy == "zeropp":
        out |= {k: True for k in ("quantized_weights", "quantized_gradients") if k not in given}
        if "secondary_partition" not in given and node > 1:
            out["secondary_partition"] = node
            context.derived("sharding.secondary_partition", node, "replicas of a node")
    return out


def check_sharding(context: Context, job: Job) -> None:
    """Raise for options that the strategy has no use for and for combinations that it refuses."""
    spec, strategy = context.spec.sharding, strategies[job.sharding.strategy]
    for key in sorted(spec.model_fields_set - ALWAYS - strategy.uses):
        if getattr(spec, key) is not type(spec).model_fields[key].default:
            able = [name for name in strategies if key in strategies[name].uses]
            context.require(Fault(f"sharding.{key}", f"{job.sharding.strategy} has no use for it; {_and(able)}"))
    if strategy.every_pass:
        _whole_passes(context, job)
    shard, replicas = job.sharding.shard_size, job.parallel.dp * job.parallel.cp
    if shard and replicas % shard:
        context.require(Fault("sharding.shard_size", f"{replicas} replicas do not divide into groups of {shard}"))
    second = job.sharding.secondary_partition
    if second and replicas % second:
        reason = f"{replicas} replicas do not divide into groups of {second}"
        context.require(Fault("sharding.secondary_partition", reason))
    for key, reason in strategy.refuses(job):
        context.require(Fault(f"sharding.{key}", reason))
    _foreign(context, job)
    if job.sharding.strategy in ("hsdp", "mics") and shard == replicas > 1:
        same = {"hsdp": "fsdp", "mics": "zero3"}[job.sharding.strategy]
        context.derived("sharding.shard_size", shard, f"all replicas, so that nothing differs from {same}")


def _foreign(context: Context, job: Job) -> None:
    """A note where the strategy is another software's than the profile."""
    ours, theirs = job.framework, load_framework(strategies[job.sharding.strategy].framework)
    if theirs.family not in ("any", ours.family) and ours.family != "any":
        reason = (
            f"{job.sharding.strategy} is that of {theirs.name}; kernels, types and buckets are those of {ours.name}"
        )
        context.derived("framework", ours.name, reason)


def _whole_passes(context: Context, job: Job) -> None:
    """Exchanges beside every pass need passes that are whole, of one stage."""
    shape = facts(job.pipeline.schedule)
    if shape.split or shape.sliced or shape.paired or shape.replicas > 1:
        reason = f"not simulated with {job.pipeline.schedule}; 1f1b, gpipe and interleaved-1f1b are"
        context.require(Fault("sharding.strategy", reason), NotBuilt)


def _and(able: list[str]) -> str:
    return f"{', '.join(able)} {'has' if len(able) == 1 else 'have'}" if able else "leave it out"


def _node(cluster: Cluster, parallel: Parallel) -> int:
    """Replicas that live in one node, where tensor parallelism fills the rest of it."""
    replicas = parallel.dp * parallel.cp
    shard = max(1, min(replicas, cluster.ranks // cluster.nodes // parallel.tp))
    while replicas % shard:
        shard -= 1
    return shard


def _reshard(given: bool | int) -> int:
    """Ranks that share parameters between forward and backward: 0 as outside, 1 nobody."""
    return int(given) if not isinstance(given, bool) else 0 if given else 1
