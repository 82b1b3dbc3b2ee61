"""
Graphs of machines as files hold them, whatever the format: nodes, edges and attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainsim.errors import TrainsimError, shorten
from trainsim.hardware.constants import limits, link_kinds
from trainsim.hardware.node import KINDS
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.wires import Physics
from trainsim.units import parse_bandwidth, parse_time

SWITCHES = ("leaf", "spine", "core")
LOCAL = re.compile(r"(?:node(\d{1,6})\.)?([a-z]+)(\d{1,6})")
FAMILIES = {"nvlink": "nvlink", "pcie": "pcie", "socket": "upi"}
MOST_NODES, MOST_EDGES = 100_000, 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineGraph:
    """What a file holds: attributes of the graph, of nodes by name, and of edges by both ends, with lines where the
    format has them."""

    attributes: Mapping[str, Any]
    nodes: Mapping[str, Mapping[str, Any]]
    edges: Mapping[tuple[str, str], Mapping[str, Any]]
    directed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A device of the graph: which node of the machine it belongs to (None: the network), its kind, its number."""

    node: str | None
    kind: str
    number: int | None


def place_of(book: Notebook, name: str, attributes: Mapping[str, Any]) -> Place:
    """Where a node of the graph belongs, by its attributes, else by a name such as ``node3.gpu0``."""
    named = LOCAL.fullmatch(name)
    kind = attributes.get("kind", named[2] if named else None)
    if kind not in (*KINDS, *SWITCHES):
        known = ", ".join((*KINDS, *SWITCHES))
        raise book.fail(f"node {shorten(name)}: its kind is {shorten(kind)}; it is one of {known}")
    if kind in SWITCHES:
        return Place(node=None, kind=kind, number=None)
    own = named is not None and named[2] == kind
    inside = attributes.get("node", named[1] if named else None)
    number = int(named[3]) if named is not None and own else None
    return Place(node="0" if inside is None else str(inside), kind=str(kind), number=number)


def physics_of_edge(book: Notebook, ends: tuple[str, str], kinds: tuple[str, str], edge: Mapping[str, Any]) -> Physics:
    """What a topology says of the cable that an edge is; rates that are those of its kind are left out."""
    where = f"edge {shorten(ends[0])} - {shorten(ends[1])}"
    name = edge.get("link", edge.get("kind"))
    name = FAMILIES.get(str(name), name) if name is not None else _usual(kinds)
    if name not in link_kinds() and name not in FAMILIES:
        raise book.fail(f"{where}: link is {shorten(name)}; it is one of {', '.join(link_kinds())}, or nvlink or pcie")
    bandwidth = _quantity(book, where, "bandwidth", edge)
    latency = _quantity(book, where, "latency", edge)
    reachable, lanes = edge.get("reachable"), edge.get("lanes")
    out: dict[str, Any] = {"kind": name}
    kind = link_kinds().get(str(name))
    if lanes is not None and bandwidth is None:
        out["lanes"] = _whole(book, where, lanes)
    if bandwidth is not None:
        count = bandwidth / kind.lane if kind else 0.0
        if kind and abs(count - round(count)) < 1e-9 * count and 1 <= round(count) <= 1024:
            out |= {} if round(count) == kind.lanes else {"lanes": round(count)}
        else:
            out["bandwidth"] = bandwidth
    if reachable is not None and not (kind and reachable == kind.reachable):
        if isinstance(reachable, bool) or not isinstance(reachable, int | float) or not 0 < reachable <= 1:
            raise book.fail(f"{where}: reachable is {shorten(reachable)}; it is a part from 0 to 1")
        out["reachable"] = float(reachable)
    if latency is not None and not (kind and latency == kind.latency):
        out["latency"] = latency
    return tuple(out.items())


def gigabits(book: Notebook, where: str, attributes: Mapping[str, Any]) -> float | None:
    """The ``bandwidth`` of *attributes* in Gb/s; None if there is none."""
    value = _quantity(book, where, "bandwidth", attributes)
    return None if value is None else value * 8e-9


def _usual(kinds: tuple[str, str]) -> str:
    """The kind of link between devices of two kinds, where an edge does not say."""
    if set(kinds) <= {"gpu", "nvswitch"}:
        return "nvlink"
    return "upi" if set(kinds) == {"host"} else "pcie"


def _quantity(book: Notebook, where: str, key: str, attributes: Mapping[str, Any]) -> float | None:
    value = attributes.get(key)
    if value is None:
        return None
    parse, what = (parse_bandwidth, "bandwidth") if key == "bandwidth" else (parse_time, "latency")
    low, high = limits(what)
    try:
        read = parse(value)
    except TrainsimError as error:
        raise book.fail(f"{where}: {error}") from None
    if not low <= read <= high:
        raise book.fail(f"{where}: {key} {shorten(value)} is out of range; it is {low:g} to {high:g} in SI units")
    return float(read)


def _whole(book: Notebook, where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1024 or value % 1:
        raise book.fail(f"{where}: lanes is {shorten(value)}; it is a whole number from 1 to 1024")
    return int(value)
