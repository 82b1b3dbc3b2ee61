"""More of the states shared among replicas: the next stages of ZeRO, or FSDP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways


def saving_more(strategy: str) -> list[str]:
    """Strategies that can take the place of *strategy* to save memory, those that share the fewest states first.

    >>> saving_more("zero1"), saving_more("hsdp"), saving_more("fsdp")
    (['zero2', 'zero3', 'fsdp'], ['fsdp'], [])
    """
    able = (name for name in strategies if strategy in strategies[name].saves_more_than)
    return sorted(able, key=lambda name: (len(strategies[name].shares), strategies[name].moves_together))


@ways.register("sharding")
def sharding(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Every strategy that shares more, if there are replicas."""
    if job.parallel.dp * job.parallel.cp == 1:
        return
    for name in saving_more(job.sharding.strategy):
        yield Trial(kind="sharding", title=strategies[name].title, changes=switched(scenario, name))


def switched(scenario: Scenario, strategy: str) -> dict[str, Any]:
    """Changes to another strategy, without the options that it has no use for."""
    spec, uses = scenario.spec.sharding, strategies[strategy].uses
    if "quantized_gradients" in uses and not spec.options.get("quantized_gradients"):
        uses = uses - {"shard_size"}  # the groups of that option
    defaults = {key: type(spec).model_fields[key].default for key in sorted(spec.options.keys() - uses)}
    stale = {f"sharding.{key}": value for key, value in defaults.items() if spec.options[key] != value}
    return {"sharding.strategy": strategy, **stale}


@ways.register("reshard")
def reshard(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Parameters given back between forward and backward, where they are kept."""
    uses = "reshard_after_forward" in strategies[job.sharding.strategy].uses
    if uses and scenario.spec.sharding.options.get("reshard_after_forward", True) not in (None, True):
        changes = {"sharding.reshard_after_forward": True}
        yield Trial(kind="sharding", title="parameters resharded after forward", changes=changes)
