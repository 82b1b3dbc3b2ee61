"""States in the memory of the host."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways
from trainsim.study.fitting.sharding import saving_more, switched


@ways.register("offload")
def offload(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """The optimizer on the CPU, and the parameters too; with another strategy where the job's own cannot."""
    now = job.sharding
    optimizer, parameters = now.offload.optimizer != "none", now.offload.parameters != "none"
    if not optimizer and not strategies[now.strategy].moves_together:
        yield from _moved(scenario, job, "optimizer on the CPU", ("optimizer",))
    if not parameters:
        keys = ("parameters",) if optimizer else ("optimizer", "parameters")
        yield from _moved(scenario, job, f"{'parameters' if optimizer else 'all states'} on the CPU", keys)


def _moved(scenario: Scenario, job: Job, title: str, keys: tuple[str, ...]) -> Iterator[Trial]:
    """Some states on the CPU, by the job's strategy or the first that can and saves more than it."""
    now = job.sharding.strategy
    able = next((name for name in (now, *saving_more(now)) if strategies[name].offloads.issuperset(keys)), None)
    if able is not None:
        more = {} if able == now else switched(scenario, able)
        title = title if able == now else f"{strategies[able].title}, {title}"
        changes = {f"sharding.offload.{key}": "cpu" for key in keys}
        yield Trial(kind="offload", title=title, changes={**more, **changes})


@ways.register("room on the host")
def room(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """What is on the CPU on drives instead, if there are any, or back on the GPUs: for hosts with little memory."""
    now = job.sharding.offload
    if "cpu" not in (now.optimizer, now.parameters):
        return
    if now.optimizer == "cpu" and job.cluster.node.drive and not strategies[job.sharding.strategy].moves_together:
        yield Trial(kind="offload", title="optimizer on the drives", changes={"sharding.offload.optimizer": "nvme"})
    yield Trial(kind="offload", title="nothing offloaded", changes={"sharding.offload": {}})
