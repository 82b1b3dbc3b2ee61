"""The sharding section resolved: which strategy, whose software, and the options that it brings itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainsim.contracts.job import Offload, Parallel, Sharding
from trainsim.frameworks import Framework
from trainsim.hardware.cluster import Cluster
from trainsim.scenario.context import Context, default
from trainsim.schedules.lookup import facts
from trainsim.sharding import strategies
from trainsim.sharding.strategy_options import AUTO


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
    context: Context, framework: Framework, cluster: Cluster, parallel: Parallel, schedule: str, hidden: int
) -> Sharding:
    """The strategy and its options; what is left out follows from the machine, the schedule and the framework."""
    spec = context.spec.sharding
    strategy = _strategy(context, parallel, schedule)
    sent = framework.communication
    usual = sent.zero3_overlap if strategies[strategy].shares_parameters else sent.gradient_overlap
    options = (
        spec.options | _automatic(context, strategy, hidden) | _brought(context, strategy, _node(cluster, parallel))
    )
    return Sharding(
        strategy=strategy,
        overlap=default(context, "sharding.overlap", spec.overlap, usual),
        options={key: value for key, value in options.items() if value is not None},
        offload=Offload(**spec.offload.model_dump()),
    )


def _strategy(context: Context, parallel: Parallel, schedule: str) -> str:
    given, whole = context.spec.sharding.strategy, facts(schedule).asynchronous
    if given is not None:
        return given
    name = "zero1" if parallel.dp > 1 and not whole else "ddp"
    context.derived("sharding.strategy", name, f"as {schedule} needs" if whole else f"dp {parallel.dp}")
    return name


def _automatic(context: Context, strategy: str, hidden: int) -> dict[str, Any]:
    """The options that are written as ``auto``, by the rule of each."""
    given, out = context.spec.sharding.options, {}
    for option in strategies[strategy].options:
        if option.automatic is not None and given.get(option.name) == AUTO:
            value = out[option.name] = option.automatic.of_hidden(hidden)
            reason = f"{option.automatic.rule}, hidden {hidden}: Hugging Face's rule for DeepSpeed"
            context.derived(f"sharding.{option.name}", value, reason)
    return out


def _brought(context: Context, strategy: str, node: int) -> dict[str, Any]:
    """Options that the strategy sets, with notes on those that follow from something."""
    out: dict[str, Any] = {}
    for key, value, reason in strategies[strategy].brings(context.spec.sharding.options, node):
        out[key] = value
        if reason:
            context.derived(f"sharding.{key}", value, reason)
    return out


def _node(cluster: Cluster, parallel: Parallel) -> int:
    """Replicas that live in one node, where tensor parallelism fills the rest of it."""
    replicas = parallel.dp * parallel.cp
    shard = max(1, min(replicas, cluster.gpus_per_node // parallel.tp))
    while replicas % shard:
        shard -= 1
    return shard
