"""
Names of links, and the links that a name stands for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainsim.errors import UnknownName

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster

Ints = npt.NDArray[np.int64]
_ON_NODE = re.compile(r"node(\d{1,9})(?:\.(.+))?")


def link_name(cluster: Cluster, link: int) -> str:
    """The name of one link; IndexError if there is no such link."""
    if not 0 <= link < cluster.links:
        raise IndexError(f"link {link} of {cluster.name}: it has links 0 to {cluster.links - 1}")
    node, local = divmod(link, cluster.links_per_node)
    if node >= cluster.nodes:
        return cluster.fabric.name(link - cluster.nodes * cluster.links_per_node)
    nic, own = divmod(local - len(cluster.node.links), 2)
    if nic >= 0:
        leaf = int(cluster.fabric.leaf_of(np.array([node]), np.array([nic]))[0])
        return f"leaf{leaf}>node{node}.nic{nic}" if own else f"node{node}.nic{nic}>leaf{leaf}"
    ends = cluster.node.links[local]
    return f"node{node}.{ends.src}>{ends.dst}"


def find_links(cluster: Cluster, name: str) -> Ints:
    """All links of the device called *name*, or the one link of that name; UnknownName otherwise."""
    numbers = _exact(cluster, name) if ">" in name else _of_device(cluster, name)
    if not numbers:
        raise UnknownName("link or device", name, _examples(cluster, name))
    return np.array(numbers, np.int64)


def links_of_network(cluster: Cluster, name: str) -> Ints:
    """The links that others use too: ``uplinks`` (all above the leaves), ``nics`` (the cables of all NICs), or those of
    a name. UnknownName if there are none."""
    first = cluster.nodes * cluster.links_per_node
    if name == "uplinks" and cluster.fabric.links:
        return np.arange(first, cluster.links, dtype=np.int64)
    if name == "nics" and cluster.has_network:
        return np.flatnonzero(cluster.is_network[:first])
    if name in ("uplinks", "nics"):
        raise UnknownName("link of this network", name, ["nics"] if cluster.has_network else ["none at all"])
    return find_links(cluster, name)


def _exact(cluster: Cluster, name: str) -> list[int]:
    """The link whose name is *name*: its number follows from the node in it."""
    match = re.search(r"node(\d{1,9})\.", name)
    if match:
        first = int(match[1]) * cluster.links_per_node
        if int(match[1]) >= cluster.nodes:
            return []
        return [i for i in range(first, first + cluster.links_per_node) if link_name(cluster, i) == name]
    first = cluster.nodes * cluster.links_per_node
    switch, _, above = name.partition(">")
    return [
        first + i
        for i, known in enumerate(cluster.fabric.names())
        if known == name or (cluster.fabric.hashes and _all_ports(known, switch, above))
    ]


def _all_ports(known: str, src: str, dst: str) -> bool:
    """Whether the link *known* is one of those that ``leaf0>spine`` or ``spine>leaf0`` stands for."""
    low, high = known.split(">")
    if dst in ("spine", "core"):
        return low.startswith(f"{src}.port") and high.startswith(dst)
    return src in ("spine", "core") and low.startswith(src) and high.startswith(f"{dst}.port")


def _of_device(cluster: Cluster, name: str) -> list[int]:
    match = _ON_NODE.fullmatch(name)
    first_above = cluster.nodes * cluster.links_per_node
    if match:
        node, device = int(match[1]), match[2]
        if node >= cluster.nodes:
            return []
        first = node * cluster.links_per_node
        links = cluster.local_links
        return [first + i for i, link in enumerate(links) if device is None or device in (link.src, link.dst)]
    ends = ((i, end) for i, known in enumerate(cluster.fabric.names()) for end in known.split(">"))
    above = [first_above + i for i, end in ends if name == end or end.startswith(f"{name}.port")]
    return _cables_of_leaf(cluster, name) + above


def _cables_of_leaf(cluster: Cluster, name: str) -> list[int]:
    """The NIC cables that end at the leaf called *name*."""
    match = re.fullmatch(r"leaf(\d{1,9})", name)
    if not match or not cluster.has_network:
        return []
    nics = cluster.fabric.nics
    node, nic = (axis.ravel() for axis in np.mgrid[0 : cluster.nodes, 0:nics])
    here = cluster.fabric.leaf_of(node, nic) == int(match[1])
    out = node[here] * cluster.links_per_node + len(cluster.node.links) + 2 * nic[here]
    return [int(i) for pair in zip(out, out + 1, strict=True) for i in pair]


def _examples(cluster: Cluster, name: str) -> list[str]:
    """Names that a message can list: nodes, the first and last device of each kind on the node meant, leaves."""
    nodes = [f"node{i}" for i in sorted({0, cluster.nodes - 1})]
    match = re.match(r"node(\d{1,9})\.", name)
    node = int(match[1]) if match and int(match[1]) < cluster.nodes else 0
    ends = {end for link in cluster.local_links for end in (link.src, link.dst)} - {"leaf"}
    kinds: dict[str, list[int]] = {}
    for end in ends:
        stem = end.rstrip("0123456789")
        kinds.setdefault(stem, []).append(int(end.removeprefix(stem) or -1))
    devices = [f"node{node}.{stem}{'' if i < 0 else i}" for stem, of in kinds.items() for i in {min(of), max(of)}]
    leaves = [f"leaf{i}" for i in sorted({0, cluster.fabric.leaves - 1}) if cluster.has_network]
    return nodes + devices + leaves + cluster.fabric.names()[:2]
