"""States and activations in the memory of the host, or states on its drives."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.sharding import strategies
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way
from trainsim.study.ways.shared_states import saving_more, switched

OFFLOAD = "offload"


@way("states on the host", MEMORY)
def offloaded(scenario: Scenario, job: Job) -> Iterator[Change]:
    """The optimizer on the CPU, and the parameters too; with another strategy where the job's own cannot."""
    now = job.sharding
    optimizer, parameters = now.offload.optimizer != "none", now.offload.parameters != "none"
    if not optimizer and not strategies[now.strategy].moves_together:
        yield from _on_cpu(scenario, job, "optimizer on the CPU", ("optimizer",))
    if not parameters:
        keys = ("parameters",) if optimizer else ("optimizer", "parameters")
        yield from _on_cpu(scenario, job, f"{'parameters' if optimizer else 'all states'} on the CPU", keys)


@way("room on the host", MEMORY)
def room_on_host(scenario: Scenario, job: Job) -> Iterator[Change]:
    """What is on the CPU on drives instead, if there are any: for hosts with little memory."""
    on_cpu = job.sharding.offload.optimizer == "cpu"
    if on_cpu and job.cluster.node.drive and not strategies[job.sharding.strategy].moves_together:
        yield Change(kind=OFFLOAD, title="optimizer on the drives", values={"sharding.offload.optimizer": "nvme"})


@way("nothing on the host", MEMORY, TIME)
def nothing_offloaded(scenario: Scenario, job: Job) -> Iterator[Change]:
    """All states back on the GPUs: faster, and hosts may have little memory."""
    if job.sharding.offload.any:
        yield Change(kind=OFFLOAD, title="nothing offloaded", values={"sharding.offload": {}})


@way("activations on the host", MEMORY)
def activations_away(scenario: Scenario, job: Job) -> Iterator[Change]:
    """What layers save, on the host until their backward."""
    if job.training.activation_offload == "none" and job.cluster.node.host is not None:
        yield _activations("activations on the CPU", "cpu")


@way("activations on the GPU", TIME)
def activations_back(scenario: Scenario, job: Job) -> Iterator[Change]:
    """What layers save stays on the GPUs."""
    if job.training.activation_offload != "none":
        yield _activations("activations on the GPU", "none")


def _activations(title: str, place: str) -> Change:
    return Change(kind="activations", title=title, values={"training.activation_offload": place})


def _on_cpu(scenario: Scenario, job: Job, title: str, keys: tuple[str, ...]) -> Iterator[Change]:
    """Some states on the CPU, by the job's strategy or the first that can and saves more than it."""
    now = job.sharding.strategy
    able = next((name for name in (now, *saving_more(now)) if strategies[name].offloads.issuperset(keys)), None)
    if able is None:
        return
    values = {f"sharding.offload.{key}": "cpu" for key in keys}
    if able != now:
        strategy = switched(scenario, able)
        title, values = f"{strategy.title}, {title}", {**strategy.values, **values}
    yield Change(kind=OFFLOAD, title=title, values=values)
