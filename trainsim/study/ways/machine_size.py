"""More GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.context import Context
from trainsim.scenario.named import find_cluster
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, way
from trainsim.study.ways.kept_batch import keeping_batch


@way("more nodes", MEMORY)
def more_nodes(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Twice the nodes."""
    cluster = scenario.spec.cluster
    if cluster.on_nodes or cluster.not_on_nodes or cluster.placement:  # which others are free is not known
        return
    twice = 2 * job.cluster.nodes
    size = _size(scenario, twice, job.cluster.gpus_per_node)
    values = {**size, **keeping_batch(scenario, job, ranks=2 * job.parallel.ranks)}
    yield Change(kind="gpus", title=f"{twice} nodes", values=values)


@way("whole nodes", MEMORY)
def whole_nodes(scenario: Scenario, job: Job) -> Iterator[Change]:
    """All GPUs of each node, where the scenario uses some of them."""
    places = _places(scenario)
    if places > job.cluster.gpus_per_node:
        ranks = job.parallel.ranks // job.cluster.gpus_per_node * places
        size = {"cluster.gpus_per_node": places, **_size(scenario, job.cluster.nodes, places)}
        values = {**size, **keeping_batch(scenario, job, ranks=ranks)}
        yield Change(kind="gpus", title=f"all {places} GPUs of a node", values=values)


def _size(scenario: Scenario, nodes: int, gpus_per_node: int) -> dict[str, Any]:
    """So many nodes, also where the scenario says how many GPUs there are in all."""
    if scenario.spec.cluster.gpus is None:
        return {"cluster.nodes": nodes}
    return {"cluster.gpus": None, "cluster.gpus_per_node": gpus_per_node, "cluster.nodes": nodes}


def _places(scenario: Scenario) -> int:
    """GPUs of a node as the topology file says."""
    data = scenario.to_dict()
    bare = {key: value for key, value in data["cluster"].items() if key not in ("gpus_per_node", "gpus")}
    same = Scenario({**data, "cluster": bare}, scenario.origin)
    return find_cluster(Context(spec=same.spec, data=same.data, origin=same.origin)).gpus_per_node
