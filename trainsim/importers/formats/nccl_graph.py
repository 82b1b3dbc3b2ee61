"""
NCCL's graph XML: the rings and trees that it has chosen (NCCL_GRAPH_DUMP_FILE), held against those found here.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.errors import shorten
from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, read, register
from trainsim.importers.source import Source
from trainsim.importers.topology.chosen import NcclChannels, NcclRings
from trainsim.importers.topology.node_facts import number
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.safe_xml import Element, read_xml, root_tag

PATTERNS = {
    "1": "balanced trees",
    "2": "split trees",
    "3": "trees",
    "4": "rings",
    "5": "multicast (NVLS)",
    "6": "CollNet",
}
RING = "4"
MOST_GPUS = 4096


def sniff(source: Source) -> float:
    """Sure of XML whose outermost element is graphs."""
    return 0.95 if root_tag(source.text) == "graphs" else 0.0


def load(source: Source) -> Findings:
    """Nothing of a machine; what NCCL decided, to be compared with it."""
    book = Notebook(source)
    root = read_xml(source.text, file=source.shown)
    if root.tag != "graphs" or not root.all("graph"):
        raise book.fail("no <graph> in a <graphs>; give what NCCL_GRAPH_DUMP_FILE writes", root.line)
    ways: list[NcclChannels] = []
    for graph in root.all("graph"):
        way = _way(book, graph)
        kind = PATTERNS.get(graph.get("pattern"), f"pattern {graph.get('pattern')}")
        rate = f"{way.inside:g} GB/s each inside a node, {way.between:g} between nodes"
        book.use(
            f"graph {graph.get('id')}",
            f"{kind}: {len(way.orders)} channels of {rate}, over {_types(graph)}",
            graph.line,
        )
        if graph.get("pattern") == RING:
            ways.append(way)
    book.ignore("latencyinter, samechannels, crossnic", "follow from the machine")
    return book.findings("nccl-graph", [NcclRings(file=source.shown, rings=tuple(ways))])


def _way(book: Notebook, graph: Element) -> NcclChannels:
    orders, nics = [], []
    for channel in graph.all("channel"):
        orders.append(tuple(_device(book, gpu, "gpu") for gpu in channel.all("gpu")))
        nics.append(_nic(book, channel.children))
    told = number(graph.get("nchannels", str(len(orders))), 0, 1024)
    if told is None or told not in (len(orders), 2 * len(orders)):
        found = f"{len(orders)} channels where nchannels is {shorten(graph.get('nchannels'))}"
        book.warn("graph.nchannels", f"{found}: those that are there count", graph.line)
    return NcclChannels(
        orders=tuple(orders),
        nics=tuple(nics),
        inside=_rate(book, graph, "speedintra"),
        between=_rate(book, graph, "speedinter"),
        line=graph.line,
    )


def _device(book: Notebook, element: Element, what: str) -> int:
    value = number(element.get("dev"), 0, MOST_GPUS)
    if value is None:
        raise book.fail(f"{what} dev={shorten(element.get('dev'))} is not a number", element.line)
    return value


def _nic(book: Notebook, members: Sequence[Element]) -> tuple[int, int] | None:
    """(GPU, NIC) at the head of a channel; None where no NIC is in it."""
    if len(members) < 2 or members[0].tag != "net":
        return None
    gpu = next((one for one in members if one.tag == "gpu"), None)
    return None if gpu is None else (_device(book, gpu, "gpu"), _device(book, members[0], "net"))


def _rate(book: Notebook, graph: Element, key: str) -> float:
    try:
        value = float(graph.get(key, "0"))
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e6:
        raise book.fail(f"{key} is {shorten(graph.get(key))}; it is a rate in GB/s", graph.line)
    return value


def _types(graph: Element) -> str:
    return " and ".join(kind for kind in (graph.get("typeintra"), graph.get("typeinter")) if kind) or "unknown links"


KEYS = (
    read("graphs.graph.pattern", "rings (4) are compared; trees and others are reported"),
    read("graphs.graph.nchannels", "reported; compared with the channels that are there"),
    read("graphs.graph.speedintra", "GB/s of a channel inside a node: compared with the rings found here"),
    read("graphs.graph.speedinter", "GB/s of a channel between nodes: reported"),
    read("graphs.graph.typeintra", "reported"),
    read("graphs.graph.typeinter", "reported"),
    read("graphs.graph.channel.gpu", "the order of a ring: compared"),
    read("graphs.graph.channel.net", "the NIC of the first GPU: compared"),
    *no_effect(
        "follow from the machine", "graphs.graph.latencyinter", "graphs.graph.samechannels", "graphs.graph.crossnic"
    ),
)

register(
    Importer(
        name="nccl-graph",
        title="rings and trees that NCCL has chosen (XML)",
        about="What `NCCL_GRAPH_DUMP_FILE=graph.xml` makes NCCL write. Give it beside a file of a machine.",
        leaves_open="Everything: it is compared with the machine that other files describe.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "`trainsim import topo.xml graph.xml` tells whether the same rings are found here, how much they carry and "
            "whether the same NIC serves each GPU.",
            "Rates of NCCL are its own estimates, below what links reach.",
        ),
    )
)
