"""
Ways through one node, found once on its graph: between its GPUs, and from each GPU to the NIC that is nearest to it.

A GPU whose NIC is out of service takes the nearest of the others, which it then shares with that NIC's own GPU. Where
the way there leads over a host and the two GPUs have NVLink, its bytes go through that GPU, as with NCCL's PXN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidTopology
from trainsim.hardware.node import FORWARDING, Node

if TYPE_CHECKING:
    import networkx as nx

Ints = npt.NDArray[np.int64]
PICOSECOND = 1e-12  # latencies are compared as whole picoseconds, so that equal ways are equal
Paths = dict[str, list[str]]


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeRoutes:
    """Links of a node crossed by each route, as ragged rows: row i is ``link[start[i]:start[i + 1]]``.

    Of g GPUs, row ``a * g + b`` leads from GPU a to GPU b, row ``g*g + a`` from GPU a out of the node through its NIC,
    row ``g*g + g + b`` from outside to GPU b. Links ``2k`` and ``2k + 1`` after the node's own are the cable of NIC k,
    out and in. ``nic`` is each GPU's NIC, -1 without a network or where all are out of service (such rows are empty);
    ``owner`` the GPU that alone uses a link, else -1.
    """

    gpus: int
    start: Ints
    link: Ints
    nic: Ints
    owner: Ints

    @cached_property
    def length(self) -> Ints:
        """Links per row."""
        return np.diff(self.start)

    def row(self, index: int) -> list[int]:
        """The links of one row."""
        return [int(i) for i in self.link[self.start[index] : self.start[index + 1]]]


@cache
def node_routes(node: Node, has_network: bool, failed: frozenset[int] = frozenset()) -> NodeRoutes:
    """Route *node*, of which the NICs *failed* are out of service: ways of least latency on which no GPU forwards.

    InvalidTopology names who cannot be reached.
    """
    graph, gpus = node.link_graph, node.count("gpu")
    names = [f"gpu{i}" for i in range(gpus)]
    ways = [least_ways(graph, name) for name in names]
    rows: list[list[int]] = [[] for _ in range(gpus * gpus)]
    for a in range(gpus):
        for b in range(a + 1, gpus):
            if names[b] not in ways[a][1]:
                raise InvalidTopology(f"{names[b]} has no path to {names[a]}: link both to a common switch or host")
            there = ways[a][1][names[b]]
            rows[a * gpus + b] = link_indices(graph, there)
            rows[b * gpus + a] = link_indices(graph, there[::-1])
    nic = np.full(gpus, -1, np.int64)
    if has_network:
        usual = _nearest_nics(node, ways)
        nic = _working_nics(node, ways, usual, failed) if failed else usual
        cable = len(node.links)
        out = [_way_out(graph, ways, usual, a, int(nic[a])) for a in range(gpus)]
        rows += [[*link_indices(graph, way), cable + 2 * int(nic[a])] if way else [] for a, way in enumerate(out)]
        rows += [
            [cable + 2 * int(nic[a]) + 1, *link_indices(graph, way[::-1])] if way else [] for a, way in enumerate(out)
        ]
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    link = np.array([i for row in rows for i in row], np.int64)
    links = len(node.links) + 2 * node.count("nic") * has_network
    return NodeRoutes(gpus=gpus, start=start, link=link, nic=nic, owner=_owners(rows, gpus, links))


def least_ways(graph: nx.DiGraph[str], source: str) -> tuple[dict[str, float], Paths]:
    """Distances and paths from *source* to every device, of least latency, then fewest hops."""
    import networkx as nx

    def weight(u: str, v: str, edge: dict[str, Any]) -> int | None:
        if u != source and graph.nodes[u]["kind"] not in FORWARDING:
            return None
        return round(float(edge["latency"]) / PICOSECOND) * 1024 + 1

    lengths_and_paths = nx.single_source_dijkstra(graph, source, weight=weight)
    return cast("tuple[dict[str, float], Paths]", lengths_and_paths)


def link_indices(graph: nx.DiGraph[str], way: list[str]) -> list[int]:
    """The links along a way."""
    return [graph.edges[edge]["index"] for edge in pairwise(way)]


def _nearest_nics(node: Node, ways: list[tuple[dict[str, float], Paths]]) -> Ints:
    """The nearest NIC of each GPU; among equals the one with the fewest GPUs, then the first."""
    nics = [f"nic{i}" for i in range(node.count("nic"))]
    users = dict.fromkeys(nics, 0)
    chosen = []
    for a, (distance, _) in enumerate(ways):
        reachable = [n for n in nics if n in distance]
        if not reachable:
            raise InvalidTopology(
                f"gpu{a} has no path to any NIC, and there is a network: link a NIC to its switch or host"
            )
        best = min(reachable, key=lambda n: (distance[n], users[n], nics.index(n)))
        users[best] += 1
        chosen.append(nics.index(best))
    return np.array(chosen, np.int64)


def _working_nics(node: Node, ways: list[tuple[dict[str, float], Paths]], usual: Ints, failed: frozenset[int]) -> Ints:
    """The NIC of each GPU, of those in service; who lost his own gets the nearest, of equals that with the fewest GPUs,
    then the next one."""
    nics, nic = node.count("nic"), usual.copy()
    lost = [a for a in range(len(usual)) if int(usual[a]) in failed]
    users = {k: int((usual == k).sum()) for k in range(nics) if k not in failed}
    for a in lost:
        distance, own = ways[a][0], int(usual[a])
        able = [k for k in users if f"nic{k}" in distance]
        nic[a] = min(able, key=lambda k: (distance[f"nic{k}"], users[k], (k - own) % nics)) if able else -1
        if able:
            users[int(nic[a])] += 1
    return nic


def _way_out(
    graph: nx.DiGraph[str], ways: list[tuple[dict[str, float], Paths]], usual: Ints, gpu: int, nic: int
) -> list[str]:
    """From a GPU to a NIC: the way of least latency, or over NVLink and the NIC's own GPU if the other leads over a
    host; nothing without a NIC."""
    if nic < 0:
        return []
    direct = ways[gpu][1][f"nic{nic}"]
    helpers = np.flatnonzero(usual == nic).tolist()
    if gpu in helpers or not helpers or not any(graph.nodes[device]["kind"] == "host" for device in direct):
        return direct
    to_helper = ways[gpu][1][f"gpu{helpers[0]}"]
    if any(graph.nodes[device]["kind"] in ("host", "pcie") for device in to_helper):
        return direct
    return [*to_helper, *ways[helpers[0]][1][f"nic{nic}"][1:]]


def _owners(rows: list[list[int]], gpus: int, links: int) -> Ints:
    """The GPU without which nothing uses a link: its only source, or else its only destination."""
    sources: list[set[int]] = [set() for _ in range(links)]
    targets: list[set[int]] = [set() for _ in range(links)]
    for index, row in enumerate(rows):
        outside = index - gpus * gpus
        source = index // gpus if outside < 0 else outside if outside < gpus else -1
        target = index % gpus if outside < 0 else -1 if outside < gpus else outside - gpus
        for link in row:
            sources[link].add(source)
            targets[link].add(target)
    owner = np.full(links, -1, np.int64)
    for link in range(links):
        for users in (sources[link], targets[link]):
            if owner[link] < 0 and len(users) == 1:
                owner[link] = min(users)
    return owner
