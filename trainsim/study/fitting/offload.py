"""States in the memory of the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.offloading import SHARDED
from trainsim.scenario.scenario import Scenario
from trainsim.sharding.offload import TOGETHER
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways
from trainsim.study.fitting.sharding import TITLES, switched


@ways.register("offload")
def offload(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """The optimizer on the CPU, and the parameters too; with ZeRO-3 where the strategy itself cannot."""
    now = job.sharding
    optimizer, parameters = now.offload.optimizer != "none", now.offload.parameters != "none"
    if not optimizer and now.strategy not in TOGETHER:
        changes = _on_cpu(scenario, "optimizer")
        alone = now.strategy != "mics"
        more = {} if alone else switched(scenario, "zero3")
        yield Trial(kind="offload", title=_title("optimizer on the CPU", alone), changes={**more, **changes})
    if not parameters:
        keys = ("parameters",) if optimizer else ("optimizer", "parameters")
        alone = now.strategy in SHARDED
        more = {} if alone else switched(scenario, "zero3")
        title = _title(f"{'parameters' if optimizer else 'all states'} on the CPU", alone)
        yield Trial(kind="offload", title=title, changes={**more, **_on_cpu(scenario, *keys)})


@ways.register("room on the host")
def room(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """What is on the CPU on drives instead, if there are any, or back on the GPUs: for hosts with little memory."""
    now = job.sharding.offload
    if "cpu" not in (now.optimizer, now.parameters):
        return
    if now.optimizer == "cpu" and job.cluster.node.drive and job.sharding.strategy not in TOGETHER:
        yield Trial(kind="offload", title="optimizer on the drives", changes={"sharding.offload.optimizer": "nvme"})
    yield Trial(kind="offload", title="nothing offloaded", changes={"sharding.offload": {}})


def _title(words: str, alone: bool) -> str:
    return words if alone else f"{TITLES['zero3']}, {words}"


def _on_cpu(scenario: Scenario, *keys: str) -> dict[str, Any]:
    return {f"sharding.offload.{key}": "cpu" for key in keys}
