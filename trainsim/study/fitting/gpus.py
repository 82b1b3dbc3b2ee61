"""More GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.context import Context
from trainsim.scenario.named import find_cluster
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways
from trainsim.study.fitting.cut import recut


@ways.register("nodes")
def nodes(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Twice the nodes."""
    now = job.cluster.nodes
    changes = {"cluster.nodes": 2 * now, **recut(scenario, job, ranks=2 * job.cluster.ranks)}
    yield Trial(kind="gpus", title=f"{2 * now} nodes", changes=changes)


@ways.register("whole nodes")
def whole_nodes(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """All GPUs of each node, where the scenario uses some of them."""
    places, now = _places(scenario), job.cluster.gpus_per_node
    if places > now:
        changes = {"cluster.gpus_per_node": places, **recut(scenario, job, ranks=job.cluster.nodes * places)}
        yield Trial(kind="gpus", title=f"all {places} GPUs of a node", changes=changes)


def _places(scenario: Scenario) -> int:
    """GPUs of a node as the topology file says."""
    data = scenario.to_dict()
    bare = {key: value for key, value in data["cluster"].items() if key != "gpus_per_node"}
    same = Scenario({**data, "cluster": bare}, scenario.origin)
    return find_cluster(Context(spec=same.spec, data=same.data, origin=same.origin)).gpus_per_node
