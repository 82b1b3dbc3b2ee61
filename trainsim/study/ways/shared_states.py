"""More or fewer of the states shared among replicas: the stages of ZeRO, or FSDP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way

RESHARD = "reshard_after_forward"


def saving_more(strategy: str) -> list[str]:
    """Strategies that can take the place of *strategy* to save memory, those that share the fewest states first.

    >>> saving_more("zero1"), saving_more("hsdp"), saving_more("fsdp")
    (['zero2', 'zero3', 'fsdp'], ['fsdp'], [])
    """
    able = (name for name in strategies if strategy in strategies[name].saves_more_than)
    return sorted(able, key=lambda name: (len(strategies[name].shares), strategies[name].moves_together))


@way("more sharding of states", MEMORY, TIME)
def more_shared(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Every strategy that shares more, if there are replicas."""
    if job.parallel.dp * job.parallel.cp > 1:
        yield from (switched(scenario, name) for name in saving_more(job.sharding.strategy))


@way("less sharding of states", TIME)
def fewer_shared(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Every strategy than which the job's own saves more memory."""
    yield from (switched(scenario, name) for name in sorted(strategies[job.sharding.strategy].saves_more_than))


def switched(scenario: Scenario, strategy: str) -> Change:
    """Changes to another strategy, without the options that it has no use for."""
    spec, uses = scenario.spec.sharding, strategies[strategy].uses
    if "quantized_gradients" in uses and not spec.options.get("quantized_gradients"):
        uses = uses - {"shard_size"}  # the groups of that option
    defaults = {key: type(spec).model_fields[key].default for key in sorted(spec.options.keys() - uses)}
    stale = {f"sharding.{key}": value for key, value in defaults.items() if spec.options[key] != value}
    values: dict[str, Any] = {"sharding.strategy": strategy, **stale}
    return Change(kind="sharding", title=strategies[strategy].title, values=values)


@way("parameters resharded", MEMORY)
def resharded(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Parameters given back between forward and backward, where they are kept."""
    if _can_reshard(job) and _kept(scenario):
        values = {f"sharding.{RESHARD}": True}
        yield Change(kind="sharding", title="parameters resharded after forward", values=values)


@way("parameters kept", TIME)
def kept(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Parameters kept between forward and backward, where they are given back."""
    if _can_reshard(job) and not _kept(scenario):
        values = {f"sharding.{RESHARD}": False}
        yield Change(kind="sharding", title="parameters kept after forward", values=values)


def _can_reshard(job: Job) -> bool:
    return RESHARD in strategies[job.sharding.strategy].uses


def _kept(scenario: Scenario) -> bool:
    return scenario.spec.sharding.options.get(RESHARD, True) not in (None, True)
