"""
The machine as networkx graphs, device by device: what users see, draw and take apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from trainsim.hardware.node import kind_of

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster


def node_graph(cluster: Cluster) -> nx.DiGraph[str]:
    """One node. Devices have ``kind``; edges ``kind`` (family), ``link`` (generation), ``bandwidth`` (line
    rate, bytes/s), ``reachable`` (part of it), ``latency`` (s)."""
    graph: nx.DiGraph[str] = nx.DiGraph(name=f"a node of {cluster.name}")
    graph.add_nodes_from((name, {"kind": kind_of(name)}) for name in cluster.node.names)
    for cable in cluster.node.cables:
        for edge in ((cable.a, cable.b), (cable.b, cable.a)):
            graph.add_edge(*edge, kind=cable.family, link=cable.kind, reachable=cable.reachable)
            graph.edges[edge].update(bandwidth=cable.bandwidth, latency=cable.latency)
    return graph


def cluster_graph(cluster: Cluster) -> nx.DiGraph[str]:
    """All nodes, leaves, spines and cores; GPUs also have their ``rank``."""
    graph: nx.DiGraph[str] = nx.DiGraph(name=cluster.name)
    of_a_node = cluster.node_graph
    for i in range(cluster.nodes):
        graph.add_nodes_from((f"node{i}.{name}", {**data, "node": i}) for name, data in of_a_node.nodes(data=True))
        graph.add_edges_from((f"node{i}.{a}", f"node{i}.{b}", data) for a, b, data in of_a_node.edges(data=True))
        for gpu in range(cluster.gpus_per_node):
            graph.nodes[f"node{i}.gpu{gpu}"]["rank"] = i * cluster.gpus_per_node + gpu
    if cluster.has_network:
        _add_fabric(graph, cluster)
    return graph


def _add_fabric(graph: nx.DiGraph[str], cluster: Cluster) -> None:
    fabric = cluster.fabric
    graph.add_nodes_from((f"leaf{i}", {"kind": "leaf"}) for i in range(fabric.leaves))
    nodes, nics = np.divmod(np.arange(cluster.nodes * fabric.nics), fabric.nics)
    for node, nic, leaf in zip(nodes, nics, fabric.leaf_of(nodes, nics), strict=True):
        _duplex(graph, f"node{node}.nic{nic}", f"leaf{leaf}", fabric.nic_bandwidth, fabric.latency)
    groups = max(fabric.pods, 1)
    spines = -(-fabric.spine_count // groups)
    graph.add_nodes_from((f"spine{i}", {"kind": "spine"}) for i in range(spines * groups))
    for leaf in range(fabric.uplinked):
        group = leaf // fabric.rails * fabric.nodes_per_leaf // fabric.nodes_per_pod if fabric.pods else 0
        for spine in range(group * spines, (group + 1) * spines):
            _duplex(graph, f"leaf{leaf}", f"spine{spine}", fabric.leaf_uplink / spines, fabric.latency)
    if fabric.pods:
        graph.add_node("core", kind="core")
        for spine in range(spines * groups):
            _duplex(graph, f"spine{spine}", "core", fabric.pod_uplink / spines, fabric.latency)


def _duplex(graph: nx.DiGraph[str], a: str, b: str, bandwidth: float, latency: float) -> None:
    for edge in ((a, b), (b, a)):
        graph.add_edge(*edge, kind="network", bandwidth=bandwidth, latency=latency)
