"""
Ways through all nodes of a cluster: nodes with the same NICs out of service are of one kind, and routed once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidTopology
from trainsim.hardware.fabric import Attached
from trainsim.hardware.ragged import expand_rows
from trainsim.hardware.routing import NodeRoutes, node_routes

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeWays:
    """``kinds`` are the different nodes, whole ones first, ``kind`` is that of each node; rows of all kinds stand one
    after the other in ``start`` and ``link``, as those of `NodeRoutes` do."""

    kinds: tuple[NodeRoutes, ...]
    kind: Ints
    start: Ints
    link: Ints
    nics: Ints

    @property
    def rows(self) -> int:
        """Rows of one kind."""
        return len(self.kinds[0].start) - 1

    def nic(self, node: Ints, gpu: Ints) -> Ints:
        """The NIC that each *gpu* of its *node* uses; -1 for none."""
        return np.asarray(self.nics[self.kind[node], gpu], np.int64)

    @property
    def owner(self) -> Ints:
        """Per node and link of it the GPU that alone uses the link, else -1."""
        return np.stack([routed.owner for routed in self.kinds])[self.kind]


def node_ways(cluster: Cluster) -> NodeWays:
    """The ways through the nodes of *cluster*."""
    failed: defaultdict[int, set[int]] = defaultdict(set)
    for node, nic in cluster.failed_nics:
        failed[node].add(nic)
    number: dict[frozenset[int], int] = {frozenset(): 0}
    kind = np.zeros(cluster.nodes, np.int64)
    for node, nics in failed.items():
        kind[node] = number.setdefault(frozenset(nics), len(number))
    kinds = tuple(node_routes(cluster.node, cluster.has_network, nics) for nics in number)
    sizes = np.cumsum([0, *(len(routed.link) for routed in kinds)])
    starts = [routed.start[:-1] + size for routed, size in zip(kinds, sizes[:-1].tolist(), strict=True)]
    return NodeWays(
        kinds=kinds,
        kind=kind,
        start=np.concatenate([*starts, sizes[-1:]]).astype(np.int64),
        link=np.concatenate([routed.link for routed in kinds]),
        nics=np.stack([routed.nic for routed in kinds]),
    )


def routes_of(cluster: Cluster, src: Ints, dst: Ints, flow: int) -> tuple[Ints, Ints]:
    """(Index of the pair, link), as `Cluster.routes` says."""
    src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
    for ranks in (src, dst):
        if len(ranks) and not (int(ranks.min()) >= 0 and int(ranks.max()) < cluster.ranks):
            wrong = int(ranks.max() if ranks.min() >= 0 else ranks.min())
            raise InvalidTopology(f"{cluster.name} has no rank {wrong}; it has ranks 0 to {cluster.ranks - 1}")
    gpus, ways, each = cluster.gpus_per_node, cluster.ways, cluster.links_per_node
    (a_node, a), (b_node, b) = np.divmod(src, gpus), np.divmod(dst, gpus)
    far = a_node != b_node
    out, into = ways.kind[a_node] * ways.rows, ways.kind[b_node] * ways.rows
    if not far.any():
        return expand_rows(ways.start, ways.link, [(out + a * gpus + b, a_node * each)])
    if not cluster.has_network:
        raise InvalidTopology(f"{cluster.name} has no network: ranks of different nodes cannot reach each other")
    first = out + np.where(far, gpus * gpus + a, a * gpus + b)
    last = np.where(far, into + gpus * gpus + gpus + b, 0)  # row 0, gpu0 to gpu0, is empty
    above = np.full((len(src), 4), -1, np.int64)
    source = Attached(a_node[far], ways.nic(a_node[far], a[far]), src[far])
    target = Attached(b_node[far], ways.nic(b_node[far], b[far]), dst[far])
    for end in (source, target):
        if (end.nic < 0).any():
            raise InvalidTopology(f"node{end.node[end.nic < 0][0]} has no NIC left, and has to reach other nodes")
    above[far] = cluster.fabric.between(source, target, flow)
    above[above >= 0] += cluster.nodes * each
    return expand_rows(ways.start, ways.link, [(first, a_node * each), above, (last, b_node * each)])
