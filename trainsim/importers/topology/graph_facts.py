"""
From a graph to a topology: the devices of its nodes, which must be alike, their cables, and the network above.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainsim.errors import shorten
from trainsim.hardware.constants import link_kinds
from trainsim.hardware.gpu import GPUS
from trainsim.hardware.topology import KEYS as TOPOLOGY_KEYS
from trainsim.importers.topology.fabric_facts import Ports, say_fabric
from trainsim.importers.topology.graph import (
    MOST_EDGES,
    MOST_NODES,
    MachineGraph,
    Place,
    gigabits,
    physics_of_edge,
    place_of,
)
from trainsim.importers.topology.likeness import Likeness
from trainsim.importers.topology.node_facts import Nic, NodeParts, assume_collectives, say_node
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.tiers import Port, SwitchNetwork, fabric_of
from trainsim.importers.topology.wires import Physics, Wire

PLAIN = ("name", "description", "source", "gpu", "nvls", "reserved_memory", "price_per_gpu_hour")
SECTIONS = ("fabric", "hosts", "nvme", "collectives", "complexes")
assert set(PLAIN) <= set(TOPOLOGY_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Laid:
    """The graph with each of its devices in its place, by the name that it has in a topology."""

    graph: MachineGraph
    places: Mapping[str, Place]
    ours: Mapping[str, str]
    nodes: tuple[str, ...]


def say_graph(book: Notebook, graph: MachineGraph) -> list[Likeness | Ports]:
    """Write what *graph* says of a machine into *book*; what the machine is compared with."""
    if len(graph.nodes) > MOST_NODES or len(graph.edges) > MOST_EDGES:
        raise book.fail(
            f"more than {MOST_NODES} nodes or {MOST_EDGES} edges; write one node and the network's attributes"
        )
    laid = _laid(book, graph)
    cables = _cables(book, laid)
    first = laid.nodes[0]
    for other in laid.nodes[1:]:
        if set(cables[other]) != set(cables[first]):
            wrong = sorted({one[0] for one in set(cables[other]) ^ set(cables[first])})[:2]
            raise book.fail(
                f"node {other} differs from node {first}: see {', '.join(wrong)}; all nodes must be identical"
            )
    said = _attributes(book, graph)
    wires = [Wire(a, b, physics) for a, b, physics in cables[first]]
    nics = _nics(book, laid, wires)
    count = sum(laid.places[name].node == first and laid.places[name].kind == "gpu" for name in laid.places)
    inner = [one for one in wires if not {one.a[:3], one.b[:3]} & {"nic"}]
    node = NodeParts(gpus=count, wires=tuple(inner), nics=nics)
    say_node(book, node, "the graph's edges")
    if not {"fabric", "collectives"} & said:
        assume_collectives(book, node)
    _fabric(book, laid, said)
    return [Likeness(file=book.source.shown)]


def _laid(book: Notebook, graph: MachineGraph) -> _Laid:
    places = {name: place_of(book, name, attributes) for name, attributes in graph.nodes.items()}
    members: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, place in places.items():
        if place.node is not None:
            members[place.node, place.kind].append(name)
    ours: dict[str, str] = {}
    for (_, kind), names in members.items():
        numbers = [places[name].number for name in names]
        numbered = None not in numbers and len(set(numbers)) == len(names)
        order = sorted(names, key=lambda name: places[name].number or 0) if numbered else names
        ours |= {name: f"{kind}{k}" for k, name in enumerate(order)}
    nodes = tuple(dict.fromkeys(node for node, _ in members))
    if not any((node, "gpu") in members for node in nodes):
        raise book.fail("no node of kind gpu is in the graph")
    if any((node, "gpu") not in members for node in nodes):
        lost = next(node for node in nodes if (node, "gpu") not in members)
        raise book.fail(
            f"node {shorten(lost)} of the machine has no GPU; devices have the attribute node where there are several"
        )
    return _Laid(graph=graph, places=places, ours=ours, nodes=nodes)


def _cables(book: Notebook, laid: _Laid) -> dict[str, dict[tuple[str, str, Physics], None]]:
    """The cables of each node; both directions of a cable are one, and must be alike."""
    out: dict[str, dict[tuple[str, str, Physics], None]] = {node: {} for node in laid.nodes}
    seen: dict[tuple[str, str, str], Physics] = {}
    for (a, b), edge in laid.graph.edges.items():
        here, there = laid.places.get(a), laid.places.get(b)
        if here is None or there is None:
            raise book.fail(f"edge {shorten(a)} - {shorten(b)}: one of them is not a node of the graph")
        if here.node is None or there.node is None:
            continue
        if here.node != there.node:
            raise book.fail(
                f"edge {shorten(a)} - {shorten(b)} connects two nodes directly; a network has leaves between them"
            )
        physics = physics_of_edge(book, (a, b), (here.kind, there.kind), edge)
        low, high = sorted((laid.ours[a], laid.ours[b]))
        if seen.setdefault((here.node, low, high), physics) != physics:
            raise book.fail(f"edge {shorten(a)} - {shorten(b)} has two rates, one per direction; a cable has one")
        out[here.node][low, high, physics] = None
    return out


def _attributes(book: Notebook, graph: MachineGraph) -> set[str]:
    """Say what the graph's own attributes say, and give their names."""
    said = set()
    for key, value in graph.attributes.items():
        section, _, rest = str(key).partition(".")
        if value is None or (key == "gpus_per_node" or key == "nodes"):
            continue
        if key == "gpu" and value not in GPUS.names():
            book.leave_open("gpu", f"{shorten(value)} is not a GPU of the catalogue: --set cluster.gpu=NAME or a file")
        elif key in PLAIN or (rest and section in SECTIONS):
            where = f"node.{key}" if section == "complexes" else key
            book.say(where, value, key)
            book.use(key, f"{where} = {shorten(value)}")
            said.add(section)
        elif key not in ("node_default", "edge_default"):
            book.warn(str(key), "unknown graph attribute, ignored")
    return said


def _nics(book: Notebook, laid: _Laid, wires: Sequence[Wire]) -> tuple[Nic, ...]:
    """The NICs of the first node: where they hang, and their rate, of the edge to a leaf or of their own."""
    graph, first, nics = laid.graph, laid.nodes[0], []
    rates: dict[str, float | None] = {}
    for (a, b), edge in graph.edges.items():
        for nic, other in ((a, b), (b, a)):
            if laid.places[nic].kind == "nic" and laid.places[other].kind == "leaf":
                rates[nic] = gigabits(book, f"edge {shorten(a)} - {shorten(b)}", edge)
    names = [name for name, place in laid.places.items() if place.node == first and place.kind == "nic"]
    for name in sorted(names, key=lambda name: int(laid.ours[name][3:])):
        ours = laid.ours[name]
        on = [(one.b if one.a == ours else one.a, one.physics) for one in wires if ours in (one.a, one.b)]
        if len(on) != 1:
            raise book.fail(f"{shorten(name)} is attached to {len(on)} devices of its node; a NIC is attached to one")
        rate = rates.get(name) or gigabits(book, f"node {shorten(name)}", graph.nodes[name])
        nics.append(Nic(name=name, on=on[0][0], physics=_cable_of_nic(book, name, on[0][1]), rate=rate))
    return tuple(nics)


def _cable_of_nic(book: Notebook, name: str, physics: Physics) -> Physics:
    """The cable of a NIC in lanes, since a topology has no other word for its rate."""
    said = dict(physics)
    if "bandwidth" not in said:
        return physics
    kind = link_kinds().get(str(said["kind"]))
    rate = said.pop("bandwidth")
    lanes = max(1, round(rate / kind.lane)) if kind else 0
    if kind and lanes * kind.lane != rate:
        book.warn(str(name), f"not modelled: a cable of {rate:g} bytes/s; {lanes} lanes of {kind.name} are nearest")
    return tuple((said | ({"lanes": lanes} if lanes else {})).items())


def _fabric(book: Notebook, laid: _Laid, said: set[str]) -> None:
    """The network: as the graph's attributes say, else as its leaves and what is above them show."""
    leaves = any(place.kind == "leaf" for place in laid.places.values())
    if "fabric" in said:
        book.say("nodes", len(laid.nodes), "the graph's nodes")
        if leaves:
            book.ignore("edges above leaves", "follow from the graph's fabric attributes")
    elif leaves:
        hosts: dict[str, list[Port]] = defaultdict(list)
        between: dict[tuple[str, str], float] = {}
        for (a, b), edge in laid.graph.edges.items():
            _network_edge(book, laid, (a, b), edge, (hosts, between))
        say_fabric(book, fabric_of(book, SwitchNetwork(hosts=hosts, cables=between)).fabric, "the graph's leaves")
    elif len(laid.nodes) > 1:
        raise book.fail(
            f"{len(laid.nodes)} nodes and nothing that connects them: add nodes of kind leaf, or keep one node"
        )


def _network_edge(
    book: Notebook,
    laid: _Laid,
    ends: tuple[str, str],
    edge: Mapping[str, Any],
    network: tuple[dict[str, list[Port]], dict[tuple[str, str], float]],
) -> None:
    """Add an edge to the ports of hosts or to the cables between switches; of two directions the first counts."""
    hosts, between = network
    (a, here), (b, there) = sorted(((name, laid.places[name]) for name in ends), key=lambda pair: pair[1].node is None)
    if there.node is not None:
        return
    where = f"edge {shorten(a)} - {shorten(b)}"
    rate = gigabits(book, where, edge)
    if rate is None:
        raise book.fail(f"{where}: a cable of the network needs its bandwidth, such as 400Gbps")
    if here.node is None:
        between.setdefault((min(a, b), max(a, b)), rate)
    elif here.kind == "nic":
        port = Port(name=laid.ours[a], switch=b, rate=rate)
        if port not in hosts[here.node]:
            hosts[here.node].append(port)
    else:
        raise book.fail(f"{where}: only NICs can be attached to the network")
