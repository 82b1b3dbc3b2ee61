"""Where a scenario's job runs, in which order its ranks go through the nodes, and what else is on the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trainsim.contracts.allocation import Allocation
from trainsim.contracts.job import Background
from trainsim.documents.catalogue import exists
from trainsim.documents.document import text_of
from trainsim.errors import InvalidTopology, ScenarioError, UnknownName, shorten
from trainsim.hardware.cluster import Cluster
from trainsim.hardware.host_list import host_line_numbers, host_lines, listed_gpus
from trainsim.hardware.naming import links_of_network
from trainsim.hardware.placements import leaves_of, placements
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.schema import ClusterSpec

ON, NOT_ON, PLACEMENT = "cluster.on_nodes", "cluster.not_on_nodes", "cluster.placement"
USUAL = "packed"


def find_allocation(context: Context, cluster: Cluster) -> Allocation:
    """The GPUs of *cluster* that the job has. Raises ScenarioError for nodes that are not there or not free."""
    spec = context.spec.cluster
    busy = _present(context, NOT_ON, spec.not_on_nodes or (), cluster)
    with context.at(PLACEMENT):
        lines = written_placement(spec, context.origin.folder)
    if lines is not None:
        return _listed(context, cluster, lines, busy)
    if isinstance(spec.on_nodes, tuple):
        return _given(context, cluster, spec.on_nodes, busy)
    if spec.on_nodes is None and spec.placement is None and not busy:
        return Allocation()
    free = np.array([node for node in range(cluster.nodes) if node not in busy], np.int64)
    number = len(free) if spec.on_nodes is None else spec.on_nodes
    if not len(free):
        context.require(Fault(NOT_ON, f"none of {cluster.nodes} nodes is free"), ScenarioError)
    if not 1 <= number <= len(free):
        most = f"{len(free)} of {cluster.nodes} nodes are free" if busy else f"the cluster has {cluster.nodes} nodes"
        context.require(Fault(ON, f"{most}; ask for 1 to {len(free)}, or give it more cluster.nodes"), ScenarioError)
    name, seed = _chosen(context)
    nodes = placements[name](free, leaves_of(cluster.fabric, free), seed)[:number].tolist()
    if spec.on_nodes is not None or spec.placement is not None:
        context.derived("cluster.on_nodes", nodes, f"{number} of {len(free)} free nodes, {name}")
    return Allocation.of_nodes(nodes, cluster.gpus_per_node)


def written_placement(spec: ClusterSpec, folder: Path) -> tuple[str, ...] | None:
    """The lines of the host list that the scenario has or names; None where a rule places the job.

    Raises ScenarioError for what is neither a file nor the name of a placement.
    """
    given = spec.placement
    if given is None or isinstance(given, Mapping):
        return None
    if not isinstance(given, str):
        return tuple(given)
    text = _host_file(given, folder)
    return None if text is None else host_lines(text)


def _host_file(given: str, folder: Path) -> str | None:
    """The text of the host list at a path; None for the name of a rule."""
    if given in placements:
        return None
    path = folder / given if exists(folder / given) else Path(given)
    if not exists(path):
        raise ScenarioError(f"{UnknownName('placement', given, placements)} Or it is the path of a host list.")
    return text_of(path, f"host list {given}", ScenarioError)


def find_background(context: Context, cluster: Cluster) -> Background | None:
    """The traffic of others; None where there is none. Raises ScenarioError for links that are not there."""
    spec = context.spec.cluster.background
    if spec is None:
        return None
    with context.at("cluster.background.on"):
        links_of_network(cluster, spec.on)
    return Background(load=spec.load, on=spec.on) if spec.load else None


def placed_nodes(allocation: Allocation, cluster: Cluster) -> tuple[int, ...]:
    """The nodes on which a job has GPUs, each once, in the order of its ranks."""
    gpus = allocation.gpu_of(np.arange(allocation.ranks(cluster.ranks), dtype=np.int64))
    return tuple(dict.fromkeys(cluster.node_of(gpus).tolist()))


def _chosen(context: Context) -> tuple[str, int]:
    """The rule of the placement and its seed."""
    given = context.spec.cluster.placement
    if given is None or isinstance(given, str):
        return placements.canonical(given or USUAL), 0
    assert isinstance(given, Mapping)
    if len(given) != 1:
        context.require(Fault(PLACEMENT, "expected one rule and its seed, such as {random: 7}"), ScenarioError)
    ((name, seed),) = given.items()
    with context.at(PLACEMENT):
        if placements.canonical(name) != "random":
            raise ScenarioError(f"{name} is not random, so it takes no seed; write placement: {name}")
    return name, seed


def _listed(context: Context, cluster: Cluster, lines: Sequence[str], busy: Sequence[int]) -> Allocation:
    """The GPUs of a host list."""
    if context.spec.cluster.on_nodes is not None:
        message = "a host list already names the nodes; leave cluster.on_nodes out"
        context.require(Fault(PLACEMENT, message), ScenarioError)
    given = context.spec.cluster.placement
    text = _host_file(given, context.origin.folder) if isinstance(given, str) else None
    try:
        allocation = Allocation(listed_gpus(cluster, lines, host_line_numbers(text or "")))
    except InvalidTopology as error:
        raise ScenarioError(context.message(PLACEMENT, str(error))) from None
    _are_free(context, PLACEMENT, placed_nodes(allocation, cluster), busy)
    return allocation


def _given(context: Context, cluster: Cluster, nodes: Sequence[int], busy: Sequence[int]) -> Allocation:
    """All GPUs of the nodes that the scenario lists."""
    if not nodes:
        context.require(Fault(ON, "names no node; write for example [0, 1], or leave it out"), ScenarioError)
    if context.spec.cluster.placement is not None:
        message = f"{list(nodes)} already lists the nodes in order; give their number, or leave "
        context.require(Fault(ON, f"{message}cluster.placement out"), ScenarioError)
    _are_free(context, ON, _present(context, ON, nodes, cluster), busy)
    return Allocation.of_nodes(nodes, cluster.gpus_per_node)


def _present(context: Context, key: str, nodes: Sequence[int], cluster: Cluster) -> Sequence[int]:
    """*nodes*, which are all there, each once."""
    missing = [node for node in nodes if node >= cluster.nodes]
    if missing:
        have = f"the nodes are 0 to {cluster.nodes - 1}" if cluster.nodes > 1 else "the only node is 0"
        context.require(Fault(key, f"there is no node {missing[0]}; {have}"), ScenarioError)
    if len(set(nodes)) < len(nodes):
        context.require(Fault(key, f"{shorten(list(nodes))} names a node twice"), ScenarioError)
    return nodes


def _are_free(context: Context, key: str, nodes: Sequence[int], busy: Sequence[int]) -> None:
    if taken := [node for node in nodes if node in busy]:
        context.require(Fault(key, f"node {taken[0]} is among {NOT_ON}; take another one"), ScenarioError)
