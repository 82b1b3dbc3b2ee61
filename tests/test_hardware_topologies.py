"""Laws that every topology obeys: routes, capacities, counts, and networkx as the oracle of the routes."""

from __future__ import annotations

import pickle
from functools import cache
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from trainsim.hardware.cluster import Cluster, load_topology, topology_names
from trainsim.hardware.fabric import FABRICS
from trainsim.hardware.gpu import gpu_names
from trainsim.hardware.node import FORWARDING, kind_of

NAMES = topology_names()


@cache
def cluster_of(name: str) -> Cluster:
    """A few nodes of it: enough for two leaves, or two pods where that is small."""
    leaves = {} if load_topology(name).fabric.kind == "single_switch" else {"nodes_per_leaf": 2}
    return load_topology(name, nodes=3 if name.endswith("nvl72") else 6, overrides=leaves)


def pairs(cluster: Cluster, most: int = 400) -> tuple[np.ndarray, np.ndarray]:
    src, dst = (axis.ravel() for axis in np.mgrid[0 : cluster.ranks, 0 : cluster.ranks])
    keep = np.random.default_rng(0).permutation(len(src))[:most]
    return src[keep], dst[keep]


def ways(cluster: Cluster, src: np.ndarray, dst: np.ndarray) -> list[list[str]]:
    index, link = cluster.routes(src, dst)
    found: list[list[str]] = [[] for _ in src]
    for i, one in zip(index.tolist(), link.tolist(), strict=True):
        found[i].append(cluster.link_name(one))
    return found


def ends(name: str) -> tuple[str, str]:
    """Both devices of a link's name, with the node before each."""
    src, dst = name.split(">")
    node = next(part.split(".")[0] for part in (src, dst) if "." in part) if "." in name else ""
    local = src.startswith("node") and not dst.startswith(("node", "leaf"))
    return src, f"{node}.{dst}" if local else dst


def test_the_machines_that_must_be_there() -> None:
    must = {"jean_zay_a100", "dgx_a100", "dgx_h100", "dgx1_v100", "dgx2_v100", "gb200_nvl72", "dgx_b200", "pcie_box"}
    assert must <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_files_say_where_their_figures_come_from(name: str) -> None:
    cluster = load_topology(name)
    assert len(cluster.source) > 60
    assert cluster.description
    assert cluster.name == name
    assert cluster.gpu.name in gpu_names()
    assert cluster.fabric.kind in FABRICS


@pytest.mark.parametrize("name", NAMES)
def test_nvlink_ports_add_up_to_the_datasheet(name: str) -> None:
    cluster = load_topology(name)
    for gpu in range(cluster.gpus_per_node * (cluster.nvlink_bandwidth > 0)):  # else they are joined by PCIe, if at all
        ports = [x for x in cluster.node.links if x.src == f"gpu{gpu}" and x.family == "nvlink"]
        assert sum(x.line_rate for x in ports) == pytest.approx(cluster.gpu.nvlink_bandwidth)


@pytest.mark.parametrize("name", NAMES)
def test_routes_start_and_end_at_their_gpus_and_join_up(name: str) -> None:
    cluster = cluster_of(name)
    src, dst = pairs(cluster)
    for a, b, way in zip(src.tolist(), dst.tolist(), ways(cluster, src, dst), strict=True):
        if a == b:
            assert way == []
            continue
        g = cluster.gpus_per_node
        hops = [ends(link) for link in way]
        assert hops[0][0] == f"node{a // g}.gpu{a % g}"
        assert hops[-1][1] == f"node{b // g}.gpu{b % g}"
        assert all(x[1] == y[0] for x, y in pairwise(hops)), way


@pytest.mark.parametrize("name", NAMES)
def test_routes_are_symmetric(name: str) -> None:
    cluster = cluster_of(name)
    src, dst = pairs(cluster, 200)
    forth, back = ways(cluster, src, dst), ways(cluster, dst, src)
    for there, home in zip(forth, back, strict=True):
        assert [ends(x) for x in there] == [ends(x)[::-1] for x in reversed(home)]


@pytest.mark.parametrize("name", NAMES)
def test_routes_between_nodes_cross_the_network_and_no_others_do(name: str) -> None:
    cluster = cluster_of(name)
    src, dst = pairs(cluster)
    index, link = cluster.routes(src, dst)
    crossed = np.zeros(len(src), bool)
    crossed[index[cluster.is_network[link]]] = True
    assert (crossed == cluster.crosses_network(src, dst)).all()
    assert (cluster.domain_of(src) == cluster.node_of(src)).all()


@pytest.mark.parametrize("name", NAMES)
def test_routes_in_a_node_are_networkx_shortest_paths_on_which_no_gpu_forwards(name: str) -> None:
    cluster = cluster_of(name)
    stands_for = {device: group for group, members in cluster.node.complexes for device in members}
    graph = nx.Graph()
    for cable in cluster.node.cables:
        a, b = stands_for.get(cable.a, cable.a), stands_for.get(cable.b, cable.b)
        graph.add_edge(a, b, latency=cable.latency)
    kind = {n: kind_of(next((d for d, c in stands_for.items() if c == n), n)) for n in graph}
    rng = np.random.default_rng(1)
    for a, b in rng.integers(0, cluster.gpus_per_node, (40, 2)).tolist():
        if a == b:
            continue
        through = [n for n in graph if kind[n] in FORWARDING or n in (f"gpu{a}", f"gpu{b}")]
        best = nx.dijkstra_path_length(graph.subgraph(through), f"gpu{a}", f"gpu{b}", "latency")
        own = [cluster.local_links[i] for i in cluster.routes(np.array([a]), np.array([b]))[1]]
        assert sum(x.latency for x in own) == pytest.approx(best)
        assert all(kind[x.dst] in FORWARDING for x in own[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_every_gpu_uses_a_nearest_nic_and_shares_it_with_as_few_as_can_be(name: str) -> None:
    cluster = cluster_of(name)
    nics = cluster.nic_of(np.arange(cluster.gpus_per_node))
    users = np.bincount(nics, minlength=cluster.nics_per_node)
    assert users.max() - users.min() <= 1 or cluster.nics_per_node > cluster.gpus_per_node
    distance = dict(nx.all_pairs_shortest_path_length(cluster.node_graph))
    for gpu, nic in enumerate(nics.tolist()):
        nearest = min(distance[f"gpu{gpu}"][f"nic{i}"] for i in range(cluster.nics_per_node))
        assert distance[f"gpu{gpu}"][f"nic{nic}"] == nearest


@pytest.mark.parametrize("name", NAMES)
def test_links_carry_what_the_cables_carry(name: str) -> None:
    cluster = cluster_of(name)
    cables = sum(c.bandwidth for c in cluster.node.cables) + cluster.nics_per_node * cluster.fabric.nic_bandwidth
    local = cluster.line_rate[: cluster.nodes * cluster.links_per_node]
    stored = sum(store.line_rate for store in cluster.node.stores)
    assert local.sum() == pytest.approx((2 * cables + stored) * cluster.nodes)
    assert (cluster.bandwidth <= cluster.line_rate).all()
    assert (cluster.bandwidth > 0).all()
    for column in (cluster.bandwidth, cluster.line_rate, cluster.is_network, cluster.owner_of):
        assert len(column) == cluster.links


@pytest.mark.parametrize("name", NAMES)
def test_a_full_leaf_sends_up_what_it_takes_in_over_the_oversubscription(name: str) -> None:
    fabric = cluster_of(name).fabric
    if fabric.uplinked:
        nodes, nics = np.divmod(np.arange(fabric.nodes * fabric.nics), fabric.nics)
        below = np.bincount(fabric.leaf_of(nodes, nics), minlength=fabric.leaves) * fabric.nic_bandwidth
        full = below == below.max()
        assert full.any()
        assert below[full] / fabric.oversubscription == pytest.approx(fabric.leaf_uplink)


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_has_the_devices_of_the_template_times_the_nodes(name: str) -> None:
    cluster = cluster_of(name)
    kinds = [data["kind"] for _, data in cluster.graph.nodes(data=True)]
    for kind, number in cluster.node.devices:
        assert kinds.count(kind) == number * cluster.nodes
    assert kinds.count("leaf") == cluster.fabric.leaves
    assert kinds.count("spine") >= cluster.fabric.spine_count
    assert nx.is_strongly_connected(cluster.graph)
    assert len(cluster.node_graph.edges) == 2 * len(cluster.node.cables)
    for _, _, data in cluster.graph.edges(data=True):
        assert data["bandwidth"] > 0
        assert data["latency"] > 0
        assert data["kind"] in {"nvlink", "pcie", "c2c", "socket", "network"}
    leaf = [d["bandwidth"] for _, b, d in cluster.graph.out_edges("leaf0", data=True) if b.startswith("spine")]
    assert not leaf or sum(leaf) == pytest.approx(cluster.fabric.leaf_uplink)


@pytest.mark.parametrize("name", NAMES)
def test_links_are_found_by_their_names(name: str) -> None:
    cluster = cluster_of(name)
    for link in np.random.default_rng(2).integers(0, cluster.links, 25).tolist():
        assert cluster.find_links(cluster.link_name(link)).tolist() == [link]
    assert len(cluster.find_links("node1")) == cluster.links_per_node
    gpu = [cluster.link_name(i) for i in cluster.find_links("node1.gpu0")]
    assert gpu
    assert all("gpu0" in n.split(".")[1].split(">") for n in gpu)


@pytest.mark.parametrize("name", NAMES)
def test_own_links_are_used_by_their_gpu_alone(name: str) -> None:
    cluster = cluster_of(name)
    src, dst = pairs(cluster, 3000)
    index, link = cluster.routes(src, dst)
    owner = cluster.owner_of[link]
    owned = owner >= 0
    assert ((owner == src[index]) | (owner == dst[index]))[owned].all()
    assert owned.any()


@pytest.mark.parametrize("name", NAMES)
def test_clusters_are_values(name: str) -> None:
    one, two = (load_topology(name, nodes=2) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != load_topology(name, nodes=3)
    assert one.bandwidth is one.bandwidth
    assert pickle.loads(pickle.dumps(one)) == one


def test_the_largest_cluster_is_built_by_arithmetic() -> None:
    cluster = load_topology("dgx_h100", nodes=16384)
    assert cluster.ranks == 131072
    src = np.arange(131072)
    index, link = cluster.routes(src, np.roll(src, 8))
    assert len(np.unique(index)) == 131072
    assert link.max() < cluster.links
