"""
The ``hosts:`` and ``nvme:`` sections of a topology file: memory of hosts and drives, or what links of their kind have.
"""

from __future__ import annotations

from dataclasses import replace

from trainsim.documents.part import DocumentPart
from trainsim.errors import UnknownName
from trainsim.hardware.constants import limits
from trainsim.hardware.node import Node, kind_of
from trainsim.hardware.storage import Drive, Host, default_drive, default_processor, drives, processors
from trainsim.units import parse_bandwidth, parse_bytes

HOST_KEYS = ("processor", "memory", "memory_bandwidth", "memory_reachable", "numa_domains", "single_thread")
NVME_KEYS = ("kind", "read", "write", "capacity")
MOST_BYTES = 1e18
MOST_DOMAINS = 64


def read_storage(top: DocumentPart, node: Node) -> Node:
    """*node* with what the topology *top* says of its hosts' memory and of its drives, or the usual for their links."""
    hosts, nvme = top.section("hosts", HOST_KEYS), top.section("nvme", NVME_KEYS)
    for section, kind in ((hosts, "host"), (nvme, "nvme")):
        if section.data and not node.count(kind):
            raise top.fail(section.path[-1], f"the node has no {kind}: add it to node.devices and link it")
    return replace(node, host=_host(hosts, node), drive=_drive(nvme, node))


def _host(section: DocumentPart, node: Node) -> Host | None:
    name, known = section.text("processor", default_processor(_kind_of_link(node, "host"))), processors()
    usual = known.get(name)
    if name and usual is None:
        raise section.fail("processor", str(UnknownName("processor", name, known)))
    if not node.count("host") or (usual is None and "memory_bandwidth" not in section.data):
        return None
    low, high = limits("bandwidth")
    usual = usual or next(iter(known.values()))
    return Host(
        memory=section.quantity("memory", parse_bytes, usual.memory, low=1.0, high=MOST_BYTES),
        bandwidth=section.quantity("memory_bandwidth", parse_bandwidth, usual.bandwidth, low=low, high=high),
        reachable=section.number("memory_reachable", usual.reachable, low=0.001, high=1.0),
        numa=section.integer("numa_domains", usual.numa, high=MOST_DOMAINS),
        single_thread=section.number("single_thread", usual.single_thread, low=0.05, high=20.0),
    )


def _drive(section: DocumentPart, node: Node) -> Drive | None:
    name, known = section.text("kind", default_drive(_kind_of_link(node, "nvme"))), drives()
    usual = known.get(name)
    if name and usual is None:
        raise section.fail("kind", str(UnknownName("kind of drive", name, known)))
    if not node.count("nvme") or (usual is None and not {"read", "write", "capacity"} <= set(section.data)):
        return None
    low, high = limits("bandwidth")
    usual = usual or next(iter(known.values()))
    return Drive(
        read=section.quantity("read", parse_bandwidth, usual.read, low=low, high=high),
        write=section.quantity("write", parse_bandwidth, usual.write, low=low, high=high),
        capacity=section.quantity("capacity", parse_bytes, usual.capacity, low=1.0, high=MOST_BYTES),
    )


def _kind_of_link(node: Node, kind: str) -> str:
    """The generation of the first cable of a device of *kind* to one of another kind; of a host not to a drive."""
    for cable in node.cables:
        a, b = kind_of(cable.a), kind_of(cable.b)
        if kind in (a, b) and a != b and (kind == "nvme" or "nvme" not in (a, b)):
            return cable.kind
    return ""
