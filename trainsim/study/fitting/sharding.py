"""More of the states shared among replicas: the next stages of ZeRO, or FSDP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.exchange import ALWAYS
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways

NEXT = {
    "ddp": ("zero1", "zero2", "zero3", "fsdp"),
    "zero1": ("zero2", "zero3", "fsdp"),
    "zero2": ("zero3", "fsdp"),
    "zeropp": ("zero3",),
    "mics": ("zero3",),
    "hsdp": ("fsdp",),
}
"""Strategies that share more than each one does."""
TITLES = {"zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "fsdp": "FSDP"}


@ways.register("sharding")
def sharding(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Every strategy that shares more, if there are replicas."""
    if job.parallel.dp * job.parallel.cp == 1:
        return
    for name in NEXT.get(job.sharding.strategy, ()):
        if name in strategies:
            yield Trial(kind="sharding", title=TITLES[name], changes=switched(scenario, name))


def switched(scenario: Scenario, strategy: str) -> dict[str, Any]:
    """Changes to another strategy, without the options that it has no use for."""
    spec, uses = scenario.spec.sharding, strategies[strategy].uses
    if "quantized_gradients" in uses and not spec.quantized_gradients:
        uses = uses - {"shard_size"}  # the groups of that option
    unused = sorted(spec.model_fields_set - ALWAYS - uses)
    defaults = {key: type(spec).model_fields[key].default for key in unused}
    stale = {f"sharding.{key}": value for key, value in defaults.items() if getattr(spec, key) != value}
    return {"sharding.strategy": strategy, **stale}


@ways.register("reshard")
def reshard(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Parameters given back between forward and backward, where they are kept."""
    uses = "reshard_after_forward" in strategies[job.sharding.strategy].uses
    if uses and job.sharding.reshard not in (None, 0):
        changes = {"sharding.reshard_after_forward": True}
        yield Trial(kind="sharding", title="parameters resharded after forward", changes=changes)
