"""
Topology files: from YAML to values, with every mistake reported where it stands (see docs/topologies.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path as FilePath
from typing import Any

from trainsim.errors import InvalidTopology, UnknownName
from trainsim.hardware.constants import (
    collective_defaults,
    collective_least,
    collective_unit,
    limits,
    link_kinds,
    switch_latency,
)
from trainsim.hardware.document import Document, Path, Section, parse
from trainsim.hardware.fabric import FABRICS, Fabric, no_fabric
from trainsim.hardware.node import Node
from trainsim.hardware.node_reader import read_node
from trainsim.hardware.routing import node_routes
from trainsim.hardware.storage_reader import read_storage
from trainsim.units import parse_time

KEYS = ("name", "description", "source", "gpu", "gpus_per_node", "nodes", "nvls", "node", "hosts", "nvme",
        "fabric", "collectives")  # fmt: skip
FABRIC_KEYS = ("kind", "nodes_per_leaf", "oversubscription", "nodes_per_pod", "pod_oversubscription", "spines",
               "reachable", "latency")  # fmt: skip
OVERRIDES: Mapping[str, Path] = {
    "nodes": ("nodes",),
    "gpu": ("gpu",),
    "gpus_per_node": ("gpus_per_node",),
    "nics_per_node": ("node", "nics", "count"),
    "nic_bandwidth": ("node", "nics", "bandwidth"),
    "fabric": ("fabric", "kind"),
    "nodes_per_leaf": ("fabric", "nodes_per_leaf"),
    "oversubscription": ("fabric", "oversubscription"),
    "nodes_per_pod": ("fabric", "nodes_per_pod"),
    "pod_oversubscription": ("fabric", "pod_oversubscription"),
    "network_reachable": ("fabric", "reachable"),
    "nvls": ("nvls",),
    "collectives": ("collectives",),
    "hosts": ("hosts",),
    "nvme": ("nvme",),
}
MERGED = ("collectives", "hosts", "nvme")
"""Overrides that change some keys of a mapping and leave the others."""
MOST_NODES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a topology file says, with overrides applied."""

    name: str
    description: str
    source: str
    gpu: str
    nodes: int
    node: Node
    fabric: Fabric
    nvls: bool
    constants: tuple[tuple[str, float], ...]


def topology_names() -> tuple[str, ...]:
    """All topologies that ship with the package.

    >>> "dgx_h100" in topology_names()
    True
    """
    return tuple(sorted(_shipped()))


def read_topology(name_or_path: str | FilePath, *, nodes: int | None, overrides: Mapping[str, Any]) -> Topology:
    """Read a topology by name or path; UnknownName or InvalidTopology say what is wrong with it."""
    file = find_topology(name_or_path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTopology(f"{file}: cannot be read: {error}") from None
    return parse_topology(text, file=_shown(file), nodes=nodes, overrides=overrides)


def parse_topology(
    text: str, *, file: str = "topology", nodes: int | None = None, overrides: Mapping[str, Any] | None = None
) -> Topology:
    """A topology from the text of a file."""
    data, lines = parse(text, file)
    wanted = dict(overrides or {})
    if nodes is not None:
        wanted["nodes"] = nodes
    top = Section.open(*_override(Document(file, lines), data, wanted), KEYS)
    node_count = top.integer("nodes", 1, high=MOST_NODES)
    written = data.get("gpus_per_node") if "gpus_per_node" in wanted else None
    node = read_storage(top, read_node(top, written=written))
    fabric = _fabric(top, node, node_count)
    try:
        node_routes(node, fabric.kind != "none")
    except InvalidTopology as error:
        raise top.fail("node", str(error)) from None
    return Topology(
        name=top.text("name", FilePath(file).stem),
        description=top.text("description", ""),
        source=top.text("source"),
        gpu=top.text("gpu"),
        nodes=node_count,
        node=node,
        fabric=fabric,
        nvls=top.flag("nvls", False),
        constants=_constants(top),
    )


def _override(
    document: Document, data: dict[str, Any], wanted: Mapping[str, Any]
) -> tuple[Document, Path, dict[str, Any]]:
    """*data* with the scenario's overrides in their places, and a document that knows them."""
    places: dict[Path, str] = {}
    for name, value in wanted.items():
        if name not in OVERRIDES:
            raise UnknownName("override of a topology", str(name), OVERRIDES)
        path = OVERRIDES[name]
        spot = data = dict(data)
        for depth, key in enumerate(path[:-1], 1):
            inner = spot.get(str(key), {})
            if not isinstance(inner, Mapping):
                raise InvalidTopology(f"{document.where(path[:depth])}: expected a mapping (key: value)")
            spot[str(key)] = spot = dict(inner)
        last = str(path[-1])
        merge = name in MERGED and isinstance(value, Mapping) and isinstance(spot.get(last), Mapping)
        spot[last] = {**spot[last], **value} if merge else value
        places[path] = name
    return Document(document.file, document.lines, places), (), data


def _fabric(top: Section, node: Node, nodes: int) -> Fabric:
    section = top.section("fabric", FABRIC_KEYS)
    kind = section.text("kind", "none")
    if kind not in FABRICS:
        raise section.fail("kind", str(UnknownName("fabric", kind, FABRICS)))
    applicable = {"none": ("kind",), "single_switch": ("kind", "reachable", "latency")}.get(kind, FABRIC_KEYS)
    other_kind = ("fabric", "kind") in top.document.overridden  # then keys of the file's own kind are left aside
    for key in section.data:
        if key not in applicable and not (other_kind and ("fabric", key) not in top.document.overridden):
            raise section.fail(key, f"{key!r} does not apply to fabric {kind!r}: {FABRICS[kind]}")
    if kind == "none":
        if nodes > 1:
            raise top.fail(
                "nodes", f"{nodes} nodes need a network, and this topology has none; use nodes: 1 or give it a fabric"
            )
        return no_fabric(nodes)
    if not node.count("nic"):
        raise section.fail("kind", f"a {kind} fabric needs NICs; add node.nics")
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
    )


def _constants(top: Section) -> tuple[tuple[str, float], ...]:
    """The collective constants, with this topology's own in place of the defaults."""
    defaults = collective_defaults()
    section = top.section("collectives", defaults)

    def read(name: str) -> float:
        if collective_unit(name) == "s":
            return section.quantity(name, parse_time, defaults[name], low=0.0, high=1.0)
        return section.number(name, defaults[name], low=collective_least(name), high=1000.0)

    return tuple((name, read(name)) for name in defaults)


def _shipped() -> dict[str, FilePath]:
    """Topology files by name: inside the installed package, else beside it in the repository."""
    package = FilePath(str(files("trainsim")))
    for folder in (package / "topologies", package.parent / "topologies"):
        found = {p.stem: p for p in sorted(folder.glob("*.yaml"))}
        if found:
            return found
    return {}


def find_topology(name_or_path: str | FilePath) -> FilePath:
    """The file behind a topology's name or path. Raises UnknownName and InvalidTopology."""
    shipped = _shipped()
    text = str(name_or_path)
    if text in shipped:
        return shipped[text]
    path = FilePath(text)
    if path.is_file():
        return path
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise InvalidTopology(f"there is no file {text}; known topologies: {', '.join(shipped)}")
    raise UnknownName("topology", text, shipped)


def _shown(file: FilePath) -> str:
    return f"topologies/{file.name}" if file in _shipped().values() else str(file)
