"""The ``fabric`` section of a topology."""

from __future__ import annotations

from typing import Any

from trainsim.documents.part import DocumentPart
from trainsim.errors import UnknownName
from trainsim.hardware.constants import limits, link_kinds, switch_latency
from trainsim.hardware.fabric import FABRICS, ROUTINGS, Fabric, no_fabric
from trainsim.hardware.node import Node
from trainsim.units import parse_time

FABRIC_KEYS = ("kind", "nodes_per_leaf", "oversubscription", "nodes_per_pod", "pod_oversubscription", "spines",
               "reachable", "latency", "routing", "seed", "flows_per_pair", "sharp")  # fmt: skip
MOST_NODES, MOST_SEEDS, MOST_FLOWS = 1 << 20, 1 << 31, 1 << 10


def read_fabric(top: DocumentPart, node: Node, nodes: int) -> Fabric:
    """The fabric of so many *nodes* like *node*. Raises InvalidTopology, with the key that is wrong."""
    section = top.section("fabric", FABRIC_KEYS)
    kind = section.text("kind", "none")
    if kind not in FABRICS:
        raise section.fail("kind", str(UnknownName("fabric", kind, FABRICS)))
    applicable = {"none": ("kind",), "single_switch": ("kind", "reachable", "latency", "sharp")}.get(kind, FABRIC_KEYS)
    elsewhere = top.document.origin.elsewhere
    other_kind = ("fabric", "kind") in elsewhere  # then keys of the file's own kind are left aside
    for key in section.data:
        if key not in applicable and not (other_kind and ("fabric", key) not in elsewhere):
            raise section.fail(key, f"{key!r} does not apply to fabric {kind!r}: {FABRICS[kind]}")
    if kind == "none":
        if nodes > 1:
            raise top.fail(
                "nodes", f"{nodes} nodes need a network, and this topology has none; use nodes: 1 or give it a fabric"
            )
        return no_fabric(nodes)
    if not node.count("nic"):
        raise section.fail("kind", f"a {kind} fabric needs NICs; add node.nics")
    if "pod_oversubscription" in section.data and not section.data.get("nodes_per_pod"):
        raise section.fail("pod_oversubscription", "nothing has pods here; add nodes_per_pod, or leave it out")
    per_leaf = nodes if kind == "single_switch" else section.integer("nodes_per_leaf", high=MOST_NODES)
    default = link_kinds()["network"].reachable
    low, high = limits("latency")
    return Fabric(
        kind=kind,
        nodes=nodes,
        nics=node.count("nic"),
        nic_bandwidth=node.nic_bandwidth,
        reachable=section.number("reachable", default, low=0.001, high=1.0),
        uplink_reachable=default,
        latency=section.quantity("latency", parse_time, switch_latency(), low=low, high=high),
        nodes_per_leaf=per_leaf,
        oversubscription=section.number("oversubscription", 1.0, low=0.01, high=1000),
        spines=section.integer("spines", 0, low=0),
        nodes_per_pod=section.integer("nodes_per_pod", 0, low=0, high=MOST_NODES),
        pod_oversubscription=section.number("pod_oversubscription", 1.0, low=0.01, high=1000),
        **_routing(section),
        sharp=section.flag("sharp", False),
    )


def _routing(section: DocumentPart) -> dict[str, Any]:
    """How flows find their uplinks."""
    routing = section.text("routing", "adaptive")
    if routing not in ROUTINGS:
        raise section.fail("routing", str(UnknownName("routing", routing, ROUTINGS)))
    for key in ("seed", "flows_per_pair"):
        if key in section.data and routing == "adaptive":
            raise section.fail(key, f"{key!r} does not apply to adaptive routing, which spreads evenly; routing: ecmp")
    return {
        "routing": routing,
        "seed": section.integer("seed", 0, low=0, high=MOST_SEEDS),
        "flows_per_pair": section.integer("flows_per_pair", 1, low=1, high=MOST_FLOWS),
    }
