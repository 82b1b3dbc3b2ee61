"""
A cluster that is not whole: NICs, leaves, rails, uplinks and spines out of service, and what goes other ways for it.

What fails adds up: each function gives the cluster that is left of one. A NIC's GPUs take another NIC of their node; a
leaf that fails takes its NICs with it; a spine takes the uplinks that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from trainsim.errors import InvalidTopology, UnknownName
from trainsim.hardware.cluster import Cluster

MOST_NAMED = 4
"""Nodes or switches that are named one by one in a sentence."""
MOST_KEPT = 16
"""Clusters with faults that are kept beside the whole one, for the next job that has the same."""


def without_nic(cluster: Cluster, name: str) -> Cluster:
    """*cluster* without the NIC called *name* (``node3.nic0``). Raises UnknownName."""
    match = re.fullmatch(r"node(\d{1,9})\.nic(\d{1,9})", name)
    if not match or int(match[1]) >= cluster.nodes or int(match[2]) >= cluster.fabric.nics:
        names = [f"node{node}.nic{nic}" for node in {0, cluster.nodes - 1} for nic in range(cluster.fabric.nics)]
        raise UnknownName("NIC", name, names)
    return _without_nics(cluster, [(int(match[1]), int(match[2]))])


def without_leaf(cluster: Cluster, name: str) -> Cluster:
    """*cluster* without a leaf, and so without the NICs on it. Raises UnknownName."""
    match, leaves = re.fullmatch(r"leaf(\d{1,9})", name), cluster.fabric.leaves
    if not match or int(match[1]) >= leaves:
        raise UnknownName("leaf", name, [f"leaf{k}" for k in sorted({0, leaves - 1})] if leaves else [])
    node, nic = (axis.ravel() for axis in np.mgrid[0 : cluster.nodes, 0 : cluster.fabric.nics])
    here = cluster.fabric.leaf_of(node, nic) == int(match[1])
    return _without_nics(cluster, zip(node[here].tolist(), nic[here].tolist(), strict=True))


def without_rail(cluster: Cluster, rail: int) -> Cluster:
    """*cluster* without NIC *rail* of every node. Raises InvalidTopology where there are no rails, or not so many."""
    if cluster.fabric.kind != "rail_optimised":
        raise InvalidTopology(f"a {cluster.fabric.kind} fabric has no rails; fail a leaf or a NIC")
    if rail >= cluster.fabric.nics:
        raise InvalidTopology(f"there are {cluster.fabric.nics} rails, 0 to {cluster.fabric.nics - 1}")
    return _without_nics(cluster, ((node, rail) for node in range(cluster.nodes)))


def without_uplinks(cluster: Cluster, name: str, count: int) -> Cluster:
    """*cluster* without *count* more uplinks of a leaf or a pod: the first ones in service. Raises UnknownName, and
    InvalidTopology if there are not so many."""
    fabric = cluster.fabric
    names = [fabric.switch_name(switch) for switch in range(fabric.switches)]
    if name not in names:
        if not names:
            raise InvalidTopology("nothing has uplinks here: all NICs are on one switch, or there is no network")
        raise UnknownName("leaf with uplinks", name, [names[0], names[fabric.uplinked - 1], *names[-1:]])
    switch = names.index(name)
    failed = {port for where, port in fabric.failed_uplinks if where == switch}
    left = [port for port in range(int(fabric.ports[switch])) if port not in failed]
    if count > len(left):
        raise InvalidTopology(f"{name} has {len(left)} uplinks in service, and {count} are to fail")
    return _without_ports(cluster, ((switch, port) for port in left[:count]))


def without_spine(cluster: Cluster, name: str) -> Cluster:
    """*cluster* without a spine: every leaf loses its uplinks to it. Raises UnknownName, and InvalidTopology where
    spines are so many that a leaf has no uplink to some."""
    fabric, match = cluster.fabric, re.fullmatch(r"spine(\d{1,9})", name)
    if not match or int(match[1]) >= fabric.spine_count:
        last = fabric.spine_count - 1
        raise UnknownName("spine", name, [f"spine{k}" for k in sorted({0, last})] if last >= 0 else [])
    in_pod, spine = fabric.spine_count // max(fabric.pods, 1), int(match[1])
    if in_pod > fabric.uplinks_per_leaf:
        raise InvalidTopology(
            f"a leaf has {fabric.uplinks_per_leaf} uplinks and there are {in_pod} spines, so it is unclear "
            f"which leaves {name} serves; use fail: {{uplink: leaf0, count: 1}}"
        )
    leaves = (
        (leaf, port)
        for leaf in range(fabric.uplinked)
        for port in range(fabric.uplinks_per_leaf)
        if fabric.spine_of(leaf, port) == spine
    )
    pods = (
        (fabric.uplinked + spine // in_pod, port)
        for port in range(fabric.uplinks_per_pod if fabric.pods else 0)
        if port % in_pod == spine % in_pod
    )
    return _without_ports(cluster, [*leaves, *pods])


def without_link(cluster: Cluster, name: str) -> Cluster:
    """*cluster* without the cable of which *name* is a direction: of a NIC, or of an uplink. Raises UnknownName, and
    InvalidTopology for links within a node."""
    fabric, first = cluster.fabric, cluster.nodes * cluster.links_per_node
    links = cluster.find_links(name)
    above = (links[links >= first] - first) // 2
    if len(above):
        begin = np.cumsum(fabric.links_per_switch) - fabric.links_per_switch
        switch = np.searchsorted(begin, above, side="right") - 1
        if fabric.hashes:
            pairs = zip(switch.tolist(), (above - begin[switch]).tolist(), strict=True)
            return _without_ports(cluster, pairs)
        return _without_ports(cluster, ((s, p) for s in switch.tolist() for p in range(int(fabric.ports[s]))))
    node, local = np.divmod(links, cluster.links_per_node)
    nic = (local - len(cluster.node.links)) // 2
    if (nic < 0).any():
        raise InvalidTopology(f"{name} is within a node, where nothing is rerouted; slow: {{link: {name}}} slows it")
    return _without_nics(cluster, zip(node.tolist(), nic.tolist(), strict=True))


def whole(cluster: Cluster) -> Cluster:
    """*cluster* with everything in service."""
    return _changed(cluster, (), ())


def is_whole(cluster: Cluster) -> bool:
    """Whether everything is in service."""
    return not cluster.failed_nics and not cluster.fabric.failed_uplinks


def cut_off(cluster: Cluster, nodes: Iterable[int]) -> tuple[str, tuple[int, ...]] | None:
    """Of a job on some *nodes*, those that cannot reach the others, and why; None if all can."""
    used = np.unique(np.fromiter(nodes, np.int64))
    if not cluster.has_network or len(used) < 2:
        return None
    lone = used[(cluster.ways.nics[cluster.ways.kind[used]] < 0).any(axis=1)]
    if len(lone):
        return "none of their NICs is in service", tuple(lone.tolist())
    fabric = cluster.fabric
    for switch in np.flatnonzero(fabric.working == 0).tolist():
        if switch >= fabric.uplinked:
            inside = used // fabric.nodes_per_pod == switch - fabric.uplinked
        else:
            inside = used // fabric.nodes_per_leaf == switch // fabric.rails
        if inside.any() and not inside.all():
            return f"{fabric.switch_name(switch)} has no uplink left", tuple(used[inside].tolist())
    return None


def rerouted(cluster: Cluster) -> tuple[str, ...]:
    """What goes other ways in *cluster*, in sentences."""
    return (*_nics_in_words(cluster), *_uplinks_in_words(cluster))


def _nics_in_words(cluster: Cluster) -> Iterator[str]:
    failed: dict[int, set[int]] = {}
    for node, nic in cluster.failed_nics:
        failed.setdefault(node, set()).add(nic)
    alike: dict[frozenset[int], list[int]] = {}
    for node, nics in failed.items():
        alike.setdefault(frozenset(nics), []).append(node)
    usual = cluster.routed.nic
    for failing, nodes in alike.items():
        kind = cluster.ways.kinds[int(cluster.ways.kind[nodes[0]])]
        ways = [_way_in_words(cluster, kind.row(kind.gpus**2 + gpu), gpu, int(kind.nic[gpu]))
                for gpu in np.flatnonzero(kind.nic != usual).tolist()]  # fmt: skip
        where = _listed("node", nodes)
        yield f"{where} without {_listed('nic', sorted(failing))}: {'; '.join(ways) or 'no GPU used it'}"


def _way_in_words(cluster: Cluster, links: list[int], gpu: int, nic: int) -> str:
    if nic < 0:
        return f"gpu{gpu} reaches no other node"
    over = [cluster.local_links[link].dst for link in links]
    helper = next((device for device in over if device.startswith("gpu")), None)
    others = [f"gpu{k}" for k in np.flatnonzero(cluster.routed.nic == nic).tolist()]
    shared = f", shared with {', '.join(others)}" if others else ""
    return f"gpu{gpu} uses nic{nic} over {f'NVLink and {helper}' if helper else 'PCIe'}{shared}"


def _uplinks_in_words(cluster: Cluster) -> Iterator[str]:
    fabric = cluster.fabric
    alike: dict[tuple[int, int], list[int]] = {}
    ports, working = fabric.ports.tolist(), fabric.working.tolist()
    for switch in sorted({switch for switch, _ in fabric.failed_uplinks}):
        alike.setdefault((working[switch], ports[switch]), []).append(switch)
    for (left, of), switches in alike.items():
        names = [fabric.switch_name(switch) for switch in switches]
        who = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} switches, {names[0]} to {names[-1]}"
        moved = "the hash puts their flows on the others" if fabric.hashes else f"{left / of:.1%} of their capacity"
        yield f"{who}: {left} of {of} uplinks, {moved}"


def _listed(kind: str, numbers: list[int]) -> str:
    if len(numbers) <= MOST_NAMED:
        return ", ".join(f"{kind}{k}" for k in numbers)
    return f"{len(numbers)} {kind}s, {kind}{numbers[0]} to {kind}{numbers[-1]},"


def _without_nics(cluster: Cluster, nics: Iterable[tuple[int, int]]) -> Cluster:
    return _changed(cluster, tuple(sorted({*cluster.failed_nics, *nics})), cluster.fabric.failed_uplinks)


def _without_ports(cluster: Cluster, ports: Iterable[tuple[int, int]]) -> Cluster:
    return _changed(cluster, cluster.failed_nics, tuple(sorted({*cluster.fabric.failed_uplinks, *ports})))


def _changed(cluster: Cluster, nics: tuple[tuple[int, int], ...], uplinks: tuple[tuple[int, int], ...]) -> Cluster:
    if (nics, uplinks) == (cluster.failed_nics, cluster.fabric.failed_uplinks):
        return cluster
    known: dict[object, Cluster] = cluster.memo.setdefault("faults", {})
    if (nics, uplinks) not in known:
        while len(known) >= MOST_KEPT:
            del known[next(iter(known))]
        fabric = replace(cluster.fabric, failed_uplinks=uplinks)
        known[nics, uplinks] = replace(cluster, fabric=fabric, failed_nics=nics)
    return known[nics, uplinks]
