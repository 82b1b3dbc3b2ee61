"""
Node-link JSON, networkx's own: a graph of a machine that trainsim wrote, or of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainsim.errors import shorten
from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, read, register
from trainsim.importers.source import Source
from trainsim.importers.topology.graph import MachineGraph
from trainsim.importers.topology.graph_facts import say_graph
from trainsim.importers.topology.graph_keys import GRAPH_KEYS, GRAPH_NOTES
from trainsim.importers.topology.notebook import Notebook

EDGES = ("edges", "links")


def sniff(source: Source) -> float:
    """Sure of lists of nodes and of edges in JSON."""
    if source.suffix in (".yaml", ".yml", ".toml") or not any(isinstance(source.data.get(key), list) for key in EDGES):
        return 0.0
    return 0.9 if isinstance(source.data.get("nodes"), list) else 0.0


def load(source: Source) -> Findings:
    """A machine: the nodes and edges of the graph."""
    book = Notebook(source)
    data = source.document.data
    for key in data:
        if key not in ("directed", "multigraph", "graph", "nodes", *EDGES):
            book.warn(key, "unknown key, ignored")
    key = next((key for key in EDGES if key in data), "edges")
    nodes, edges = _nodes(book, data), _edges(book, data, key)
    attributes = data.get("graph", {})
    if not isinstance(attributes, Mapping):
        raise book.fail(f"graph: expected a mapping (key: value), found {shorten(attributes)}")
    directed = _flag(book, data, "directed")
    if _flag(book, data, "multigraph"):
        book.note("multigraph", "true: parallel edges are refused; write lanes")
    for told in ("nodes", key):
        book.use(told, f"{len(data[told])} of them")
    if "graph" in data:
        book.use("graph", "keys of the topology")
    observed = say_graph(book, MachineGraph(attributes=attributes, nodes=nodes, edges=edges, directed=directed))
    return book.findings("node-link", observed)


def _nodes(book: Notebook, data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    nodes: dict[str, Mapping[str, Any]] = {}
    for k, node in enumerate(_listed(book, data, "nodes")):
        name = _name(book, node, "id", f"nodes.{k}")
        if name in nodes:
            raise book.fail(f"nodes.{k}: {shorten(name)} stands twice")
        nodes[name] = node
    return nodes


def _edges(book: Notebook, data: Mapping[str, Any], key: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    edges: dict[tuple[str, str], Mapping[str, Any]] = {}
    for k, edge in enumerate(_listed(book, data, key)):
        ends = _name(book, edge, "source", f"{key}.{k}"), _name(book, edge, "target", f"{key}.{k}")
        if ends in edges:
            raise book.fail(f"{key}.{k}: {' - '.join(map(shorten, ends))} stands twice; parallel cables are lanes")
        edges[ends] = edge
    return edges


def _flag(book: Notebook, data: Mapping[str, Any], key: str) -> bool:
    value = data.get(key, False)
    if not isinstance(value, bool):
        raise book.fail(f"{key}: expected true or false, found {shorten(value)}")
    if key in data:
        book.use(key, "both directions of a cable are one" if key == "directed" else "parallel edges")
    return value


def _listed(book: Notebook, data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise book.fail(f"{key}: expected a list of objects")
    return value


def _name(book: Notebook, item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise book.fail(f"{where}: {key} is {shorten(value)}; it is a name")
    return str(value)


register(
    Importer(
        name="node-link",
        title="a graph of a machine in node-link JSON",
        about="What `trainsim show topology NAME --out x.json` or networkx's `node_link_data` writes, or one's own.",
        leaves_open="What attributes do not say: the GPU, hosts' memory, the network of a graph without leaves.",
        keys=(
            *GRAPH_KEYS,
            read("directed", "both directions of a cable are one"),
            read("multigraph", "true: parallel edges are refused; write lanes"),
        ),
        sniff=sniff,
        load=load,
        notes=GRAPH_NOTES,
    )
)
