"""What is out of service in a scenario's ``what_if``, and the cluster that is left."""

from __future__ import annotations

import numpy as np

from trainsim.contracts.allocation import Allocation
from trainsim.errors import InvalidPlan
from trainsim.hardware import faults
from trainsim.hardware.cluster import Cluster
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.what_if_section import FailSpec
from trainsim.units import format_number_of

MOST_NAMED = 8
"""Nodes that a message names."""


def with_faults(context: Context, cluster: Cluster, allocation: Allocation) -> Cluster:
    """*cluster* without what fails in ``what_if``.

    Raises ScenarioError for what is not there, and InvalidPlan if a node of the job can no longer be reached.
    """
    gpus = allocation.gpu_of(np.arange(allocation.ranks(cluster.ranks), dtype=np.int64))
    nodes = np.unique(cluster.node_of(gpus)).tolist()
    for k, entry in enumerate(context.spec.what_if):
        if entry.fail is not None:
            key = f"what_if.{k}.fail"
            with context.at(key):
                cluster = _without(cluster, entry.fail)
            lost = faults.cut_off(cluster, nodes)
            if lost is not None:
                context.require(Fault(key, _refusal(*lost)), InvalidPlan)
    for sentence, number in zip(faults.rerouted(cluster), range(len(context.spec.what_if)), strict=False):
        context.derived(f"what_if.rerouted.{number}", sentence, "what_if: fail")
    return cluster


def _without(cluster: Cluster, fail: FailSpec) -> Cluster:
    if fail.nic is not None:
        return faults.without_nic(cluster, fail.nic)
    if fail.link is not None:
        return faults.without_link(cluster, fail.link)
    if fail.uplink is not None:
        return faults.without_uplinks(cluster, fail.uplink, fail.count)
    if fail.leaf is not None:
        return faults.without_leaf(cluster, fail.leaf)
    if fail.spine is not None:
        return faults.without_spine(cluster, fail.spine)
    assert fail.rail is not None
    return faults.without_rail(cluster, fail.rail)


def _refusal(why: str, nodes: tuple[int, ...]) -> str:
    named = ", ".join(map(str, nodes[:MOST_NAMED])) + (", ..." if len(nodes) > MOST_NAMED else "")
    several = f"{format_number_of(len(nodes), 'node')} ({named}) cannot reach the others"
    return f"{several}: {why}; cluster.on_nodes without them would work, or nodes on one side alone"
