"""
The graph of a machine as a file that other programs read: GraphML and node-link JSON, with all that it is made of.

What edges cannot say stands in attributes of the graph, called as in a topology file: ``fabric.kind``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainsim.errors import TrainsimError
from trainsim.hardware.constants import collective_defaults
from trainsim.hardware.ranges import shorten

if TYPE_CHECKING:
    import networkx as nx

    from trainsim.hardware.cluster import Cluster

MOST_EDGES = 400_000
OF_FABRICS = ("reachable", "latency")
OF_LEAVES = ("nodes_per_leaf", "oversubscription", "spines", "nodes_per_pod", "pod_oversubscription")


def graph_text(cluster: Cluster, suffix: str) -> str:
    """The whole graph of *cluster* as the text of a file that ends in *suffix*. Raises TrainsimError for one too large.

    >>> from trainsim.hardware.cluster import load_topology
    >>> json.loads(graph_text(load_topology("pcie_4gpu"), ".json"))["graph"]["gpu"]
    'rtx-4090'
    """
    edges = 2 * cluster.nodes * len(cluster.node.cables)
    if edges > MOST_EDGES:
        raise TrainsimError(
            f"{cluster.nodes} nodes make a graph of {edges} edges, which is too large for a file; use fewer (--nodes)"
        )
    graph = cluster.graph.copy()
    graph.graph = attributes(cluster)
    for node in range(cluster.nodes):
        for nic in range(cluster.fabric.nics):
            graph.nodes[f"node{node}.nic{nic}"]["bandwidth"] = cluster.fabric.nic_bandwidth
    return WRITERS[suffix](graph)


def attributes(cluster: Cluster) -> dict[str, Any]:
    """What the edges of its graph do not say of *cluster*, by the keys of a topology."""
    same = {key: getattr(cluster, key) for key in ("name", "description", "source", "nvls")}
    sections: dict[str, Mapping[str, Any]] = {
        "complexes": {name: shorten(list(members)) for name, members in cluster.node.complexes},
        "fabric": _fabric(cluster),
        "hosts": _hosts(cluster),
        "nvme": _drives(cluster),
        "collectives": {k: v for k, v in cluster.constants.items() if v != collective_defaults()[k]},
    }
    kept = {"reserved_memory": cluster.reserved_memory, "price_per_gpu_hour": cluster.price_per_gpu_hour}
    flat = {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}
    return {**same, "gpu": cluster.gpu.name, **{key: value for key, value in kept.items() if value}, **flat}


def _fabric(cluster: Cluster) -> dict[str, Any]:
    fabric = cluster.fabric
    keys = {"none": (), "single_switch": OF_FABRICS}.get(fabric.kind, (*OF_FABRICS, *OF_LEAVES))
    pods = ("nodes_per_pod", "pod_oversubscription")
    said = {key: getattr(fabric, key) for key in keys if key not in pods or fabric.nodes_per_pod}
    return {"kind": fabric.kind, **{key: value for key, value in said.items() if key != "spines" or value}}


def _hosts(cluster: Cluster) -> dict[str, Any]:
    host = cluster.node.host
    if host is None:
        return {}
    names = {"memory": host.memory, "memory_bandwidth": host.bandwidth, "memory_reachable": host.reachable}
    return {**names, "numa_domains": host.numa, "single_thread": host.single_thread}


def _drives(cluster: Cluster) -> dict[str, Any]:
    drive = cluster.node.drive
    return {} if drive is None else {"read": drive.read, "write": drive.write, "capacity": drive.capacity}


def _graphml(graph: nx.DiGraph[str]) -> str:
    import networkx as nx

    return "\n".join(nx.generate_graphml(graph)) + "\n"


def _json(graph: nx.DiGraph[str]) -> str:
    import networkx as nx

    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=1, ensure_ascii=False) + "\n"


WRITERS: Mapping[str, Callable[[nx.DiGraph[str]], str]] = {".graphml": _graphml, ".json": _json}
"""Who writes a graph, by the ending of the file."""
