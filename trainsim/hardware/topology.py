"""
Topology files: from YAML to values, with every mistake reported where it stands (see docs/topologies.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from trainsim.documents.catalogue import COMMON, Catalogue, Data, Spec, folder_beside
from trainsim.documents.document import Document, read_text, value_of
from trainsim.documents.origin import Key, Origin
from trainsim.documents.part import DocumentPart, between, number, scalar
from trainsim.errors import InvalidTopology, TrainsimError, UnknownName
from trainsim.hardware.collective_constants import COLLECTIVE_CONSTANTS, load_collectives, read_constant
from trainsim.hardware.constants import collective_defaults, generation_constants
from trainsim.hardware.fabric import Fabric
from trainsim.hardware.fabric_reader import MOST_NODES, read_fabric
from trainsim.hardware.gpu import GPU, GPUS, load_gpu
from trainsim.hardware.node import Node
from trainsim.hardware.node_reader import read_node
from trainsim.hardware.nvlinks import OWN, with_nvlink
from trainsim.hardware.routing import node_routes
from trainsim.hardware.storage_reader import read_storage
from trainsim.units import format_bytes, parse_bytes

KEYS = ("name", "description", "source", "gpu", "gpus_per_node", "nodes", "nvls", "nvlink_bandwidth", "reserved_memory",
        "price_per_gpu_hour", "node", "hosts", "nvme", "fabric", "collectives")  # fmt: skip
OVERRIDES: Mapping[str, Key] = {
    "nodes": ("nodes",),
    "gpu": ("gpu",),
    "gpus_per_node": ("gpus_per_node",),
    "nvlink_bandwidth": ("nvlink_bandwidth",),
    "nics_per_node": ("node", "nics", "count"),
    "nic_bandwidth": ("node", "nics", "bandwidth"),
    "fabric": ("fabric", "kind"),
    "nodes_per_leaf": ("fabric", "nodes_per_leaf"),
    "oversubscription": ("fabric", "oversubscription"),
    "nodes_per_pod": ("fabric", "nodes_per_pod"),
    "pod_oversubscription": ("fabric", "pod_oversubscription"),
    "network_reachable": ("fabric", "reachable"),
    "routing": ("fabric", "routing"),
    "routing_seed": ("fabric", "seed"),
    "flows_per_pair": ("fabric", "flows_per_pair"),
    "sharp": ("fabric", "sharp"),
    "nvls": ("nvls",),
    "reserved_memory": ("reserved_memory",),
    "price_per_gpu_hour": ("price_per_gpu_hour",),
    "collectives": ("collectives",),
    "hosts": ("hosts",),
    "nvme": ("nvme",),
}
MERGED = ("collectives", "hosts", "nvme")
"""Overrides that change some keys of a mapping and leave the others."""


def _holds(base: Data, over: Data) -> Data:
    """Another GPU brings its own NVLinks, unless cables come with it."""
    node = over.get("node")
    cabled = isinstance(node, Mapping) and "links" in node
    return {**base, "nvlink_bandwidth": OWN} if "gpu" in over and not cabled else base


TOPOLOGIES = Catalogue(
    kind="topology",
    plural="topologies",
    key="topologies",
    folders=folder_beside("topologies"),
    holds=_holds,
    inner={"gpu": GPUS, "collectives": COLLECTIVE_CONSTANTS},
    error=InvalidTopology,
    needs="a topology needs at least gpu, gpus_per_node and node",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a topology file says, with overrides applied."""

    name: str
    description: str
    source: str
    gpu: GPU
    nodes: int
    node: Node
    fabric: Fabric
    nvls: bool
    reserved_memory: float
    price_per_gpu_hour: float | None
    constants: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Other values for fields of a topology, by the names of OVERRIDES, and where each stands, for messages."""

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, name: str) -> str:
        """What to put before a message about the value called *name*."""
        return self.places.get(name, f"override {name}")

    def without(self, name: str) -> Changes:
        """The others."""
        return replace(self, values={key: value for key, value in self.values.items() if key != name})

    @property
    def paths(self) -> dict[Key, str]:
        """The place of each value by its key in the topology."""
        out: dict[Key, str] = {}
        for name, value in self.values.items():
            key = OVERRIDES[name]
            merged = name in MERGED and isinstance(value, Mapping)
            inner = {(*key, str(k)): f"{self.place(name)}.{k}" for k in value} if merged else {}
            out |= {key: self.place(name), **inner}
        return out


def topology_names() -> tuple[str, ...]:
    """All topologies that ship with the package.

    >>> "dgx_h100" in topology_names()
    True
    """
    return TOPOLOGIES.names()


def find_topology(topology: Spec, *, origin: Origin | None = None) -> Document:
    """What the file of a topology says. Raises UnknownName and InvalidTopology."""
    return TOPOLOGIES.find(topology, origin=origin)


def parse_topology(
    text: str, *, file: str = "topology", nodes: int | None = None, overrides: Mapping[str, Any] | None = None
) -> Topology:
    """A topology from the text of a file."""
    document = read_text(text, file=file, error=InvalidTopology, needs=TOPOLOGIES.needs)
    values = {**(overrides or {}), **({} if nodes is None else {"nodes": nodes})}
    return read_topology(document, Changes(values=values))


def read_topology(document: Document, changes: Changes) -> Topology:
    """The topology that *document* describes, with *changes*; InvalidTopology says what is wrong with it."""
    written = document.data.get("gpus_per_node") if "gpus_per_node" in changes.values else None
    top = opened(document, changes)
    gpu = gpu_of(top)
    node_count = top.integer("nodes", 1, high=MOST_NODES)
    node = read_node(top, written=written)
    whole = node if written is None else read_node(replace(top, data={**top.data, "gpus_per_node": written}))
    node = read_storage(top, with_nvlink(top, node, gpu, whole))
    fabric = read_fabric(top, node, node_count)
    try:
        node_routes(node, fabric.kind != "none")
    except InvalidTopology as error:
        raise top.fail("node", str(error)) from None
    return Topology(
        name=document.name if "name" not in top.data else top.text("name"),
        description=top.text("description", ""),
        source=top.text("source"),
        gpu=gpu,
        nodes=node_count,
        node=node,
        fabric=fabric,
        nvls=top.flag("nvls", False) and gpu.nvls,
        reserved_memory=_reserved(top, gpu),
        price_per_gpu_hour=_price(top),
        constants=_constants(top, node),
    )


def opened(document: Document, changes: Changes) -> DocumentPart:
    """*document* with *changes*, ready to be read."""
    changed = _changed(document, changes)
    return DocumentPart.open(changed, (), changed.data, KEYS)


def gpu_of(top: DocumentPart) -> GPU:
    """The GPU that a topology names, by name, path or in place; a path starts at the topology's folder."""
    given = top.data.get("gpu")
    if isinstance(given, GPU):
        return given
    if isinstance(given, Mapping):
        return load_gpu(given, origin=top.document.origin.part(("gpu",)))
    name = top.text("gpu")
    origin = Origin(folder=top.document.origin.folder)
    try:
        return load_gpu(name, origin=origin)
    except TrainsimError as error:
        raise top.fail("gpu", str(error)) from None


def _changed(document: Document, changes: Changes) -> Document:
    """*document* with the changes in their places."""
    data: dict[str, Any] = _with_constants(document)
    if "gpu" in changes.values:
        data["nvlink_bandwidth"] = OWN
    for name, value in changes.values.items():
        if name not in OVERRIDES:
            raise UnknownName("override of a topology", str(name), OVERRIDES)
        path = OVERRIDES[name]
        spot = data
        for depth, key in enumerate(path[:-1], 1):
            inner = spot.get(str(key), {})
            if not isinstance(inner, Mapping):
                raise document.fail(path[:depth], "expected a mapping (key: value)")
            spot[str(key)] = spot = dict(inner)
        last = str(path[-1])
        merge = name in MERGED and isinstance(value, Mapping) and isinstance(spot.get(last), Mapping)
        spot[last] = {**spot[last], **value} if merge else value
    elsewhere = {**document.origin.elsewhere, **changes.paths}
    return replace(document, data=data, origin=replace(document.origin, elsewhere=elsewhere))


def _reserved(top: DocumentPart, gpu: GPU) -> float:
    """Bytes of each GPU that others keep: written as bytes or as a share of what programs see."""

    def read(value: object) -> float:
        text = value.strip() if isinstance(value, str) else ""
        if not text.endswith("%"):
            return parse_bytes(scalar(value))
        return between(number(value_of(text[:-1])), 0.0, 100.0, text) / 100.0 * gpu.usable_memory

    kept = top.value("reserved_memory", 0.0, read)
    if kept >= gpu.usable_memory:
        usable = format_bytes(gpu.usable_memory)
        raise top.fail(
            "reserved_memory", f"{format_bytes(kept)} leaves nothing of the {usable} of a {gpu.name}; reserve less"
        )
    return kept


def _price(top: DocumentPart) -> float | None:
    """What a GPU costs for an hour, in a currency of the writer's choice; None if nobody says."""
    if top.data.get("price_per_gpu_hour") is None:
        return None
    return top.number("price_per_gpu_hour", low=1e-9, high=1e9)


def _with_constants(document: Document) -> dict[str, Any]:
    """What *document* says, with the constants of collectives that it names in place of their name."""
    given, data = document.data.get("collectives"), dict(document.data)
    if is_named(given):
        by_name = isinstance(given, str)
        origin = Origin(folder=document.origin.folder) if by_name else document.origin.part(("collectives",))
        try:
            data["collectives"] = dict(load_collectives(given, origin=origin))
        except TrainsimError as error:
            raise document.fail(("collectives",), str(error)) if by_name else error from None
    return data


def is_named(constants: object) -> TypeGuard[str | Mapping[str, Any]]:
    """Whether constants of collectives are a name, a path, or stand on a ``base``; else they are a few of them."""
    return isinstance(constants, str) or (isinstance(constants, Mapping) and "base" in constants)


def _constants(top: DocumentPart, node: Node) -> tuple[tuple[str, float], ...]:
    """The constants of collectives: this topology's own, else those of its NVLinks, else the usual ones."""
    section = top.section("collectives", [*COMMON, *collective_defaults()])
    nvlink = next((cable.kind for cable in node.cables if cable.family == "nvlink"), "")
    usual = {**collective_defaults(), **generation_constants(nvlink)}
    return tuple((name, read_constant(section, name, usual[name])) for name in usual)
