"""
GraphML, the XML of graphs: of a machine that trainsim wrote, or of one's own.
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
from trainsim.importers.topology.safe_xml import Element, read_xml, root_tag

NUMBERS = {"int": int, "long": int, "float": float, "double": float}


def sniff(source: Source) -> float:
    """Sure of XML whose outermost element is graphml."""
    return 0.95 if root_tag(source.text) == "graphml" else 0.0


def load(source: Source) -> Findings:
    """A machine: the nodes and edges of the graph."""
    book = Notebook(source)
    root = read_xml(source.text, file=source.shown)
    graphs = [child for child in root.children if _tag(child) == "graph"]
    if _tag(root) != "graphml" or len(graphs) != 1:
        raise book.fail(f"holds {len(graphs)} graphs of GraphML, where one is expected", root.line)
    observed = say_graph(book, _graph(book, root, graphs[0]))
    return book.findings("graphml", observed)


def _graph(book: Notebook, root: Element, graph: Element) -> MachineGraph:
    keys = {
        child.get("id"): (child.get("attr.name") or child.get("id"), child.get("attr.type", "string"))
        for child in root.children
        if _tag(child) == "key"
    }
    nodes: dict[str, Mapping[str, Any]] = {}
    edges: dict[tuple[str, str], Mapping[str, Any]] = {}
    for child in graph.children:
        tag = _tag(child)
        if tag == "node":
            if child.get("id") in nodes:
                raise book.fail(f"node {shorten(child.get('id'))} stands twice", child.line)
            nodes[child.get("id")] = _data(book, child, keys)
        elif tag == "edge":
            ends = child.get("source"), child.get("target")
            if ends in edges:
                raise book.fail(
                    f"edge {' - '.join(map(shorten, ends))} stands twice; parallel cables are lanes", child.line
                )
            edges[ends] = _data(book, child, keys)
        elif tag not in ("data", "desc"):
            book.warn(tag, "unknown element, ignored", child.line)
    directed = graph.get("edgedefault") == "directed"
    return MachineGraph(attributes=_data(book, graph, keys), nodes=nodes, edges=edges, directed=directed)


def _data(book: Notebook, element: Element, keys: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The attributes of *element*, each of the type that its key has."""
    out: dict[str, Any] = {}
    for child in element.children:
        if _tag(child) != "data":
            continue
        name, kind = keys.get(child.get("key"), (child.get("key"), "string"))
        out[name] = _value(book, child, kind)
    return out


def _value(book: Notebook, element: Element, kind: str) -> Any:
    text = element.text
    if kind == "boolean":
        if text.lower() not in ("true", "false", "0", "1"):
            raise book.fail(f"{shorten(text)} is not a boolean", element.line)
        return text.lower() in ("true", "1")
    if kind not in NUMBERS:
        return text
    try:
        return NUMBERS[kind](text)
    except (ValueError, OverflowError):
        raise book.fail(f"{shorten(text)} is not a {kind}", element.line) from None


def _tag(element: Element) -> str:
    """The name of an element without its namespace's prefix."""
    return element.tag.rpartition(":")[2]


register(
    Importer(
        name="graphml",
        title="a graph of a machine in GraphML",
        about="What `trainsim show topology NAME --out x.graphml` or networkx's `write_graphml` writes, or one's own.",
        leaves_open="What attributes do not say: the GPU, hosts' memory, the network of a graph without leaves.",
        keys=(*GRAPH_KEYS, read("key", "names and types of attributes")),
        sniff=sniff,
        load=load,
        notes=GRAPH_NOTES,
    )
)
