"""
``rocm-smi --showtopo``: how every AMD GPU of a node is joined to every other.
"""

from __future__ import annotations

import re
from itertools import combinations

from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, read, register
from trainsim.importers.source import Source
from trainsim.importers.topology.generations import parts
from trainsim.importers.topology.matrix import LinkMatrix, plain_lines, read_matrix
from trainsim.importers.topology.node_facts import NodeParts, assume_collectives, say_node
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.wires import wire

TITLE = re.compile(r"=*\s*(Weight|Hops|Link Type) between two GPUs\s*=*")
CELLS = {"Weight": re.compile(r"\d{1,9}"), "Hops": re.compile(r"\d{1,9}"), "Link Type": re.compile(r"0|XGMI|PCIE")}
NUMA = re.compile(r"GPU\s*\[?(\d{1,4})\]?\s*:.*Numa Node\s*:\s*(-?\d{1,4})", re.IGNORECASE)


def sniff(source: Source) -> float:
    """Sure of the title of its matrix of link types."""
    return 0.95 if "Link Type between two GPUs" in source.text else 0.0


def load(source: Source) -> Findings:
    """A node: Infinity Fabric between GPUs, and the hosts that they hang on."""
    book = Notebook(source)
    lines = plain_lines(source.text)
    found = _matrices(book, lines)
    kinds = found["Link Type"]
    gpus = sorted(kinds.labels, key=lambda name: int(re.sub(r"\D", "", name) or 0))
    ours = {name: f"gpu{i}" for i, name in enumerate(gpus)}
    hops = found.get("Hops")
    direct = [(a, b) for a, b in combinations(gpus, 2) if kinds.cell[a, b] == "XGMI" and _hops(hops, a, b) == 1]
    far = [(a, b) for a, b in combinations(gpus, 2) if kinds.cell[a, b] == "XGMI" and _hops(hops, a, b) != 1]
    wires = [wire(ours[a], ours[b], kind="nvlink", lanes=1) for a, b in direct]
    if direct:
        book.use("XGMI", f"{len(direct)} pairs of GPUs are connected directly", kinds.header + 1)
        book.note("XGMI", "one link between two GPUs: how many there are is not reported (an MI250X has up to 4)")
    if far:
        book.ignore(
            "Hops", f"{len(far)} pairs are joined over other GPUs, which do not forward here: over hosts instead"
        )
    numa = {int(match[1]): match[2] for line in lines if (match := NUMA.match(line.strip()))}
    nodes = list(dict.fromkeys(numa.get(i, "0") for i in range(len(gpus))))
    if not numa:
        book.note("Numa Node", "the file has none: all GPUs hang on one host")
    wires += [wire(f"gpu{i}", f"host{nodes.index(numa.get(i, '0'))}", kind="pcie") for i in range(len(gpus))]
    wires += [wire(f"host{a}", f"host{b}", **_socket()) for a, b in combinations(range(len(nodes)), 2)]
    book.ignore("Weight", "follows from kinds and hops")
    node = NodeParts(gpus=len(gpus), wires=tuple(wires))
    say_node(book, node, "--showtopo")
    assume_collectives(book, node)
    book.leave_open("gpu", "the file does not say which GPU it is: --set cluster.gpu=mi300x")
    return book.findings("rocm-smi")


def _matrices(book: Notebook, lines: list[str]) -> dict[str, LinkMatrix]:
    """The matrices below their titles; that of link types must be there, and all name the same GPUs."""
    found: dict[str, LinkMatrix] = {}
    for i, line in enumerate(lines):
        title = TITLE.fullmatch(line.strip())
        start = next((k for k in range(i + 1, len(lines)) if lines[k].strip()), None)
        if title and start is not None and lines[start].split()[0].startswith("GPU"):
            found[title[1]] = read_matrix(book, lines, start, CELLS[title[1]])
    if "Link Type" not in found:
        raise book.fail("no matrix below 'Link Type between two GPUs'; give the whole output of rocm-smi --showtopo")
    labels = {matrix.labels for matrix in found.values()}
    if len(labels) > 1 or any(not re.fullmatch(r"GPU\d+", name) for name in found["Link Type"].labels):
        raise book.fail("its matrices do not name the same GPUs; give the whole output of rocm-smi --showtopo")
    return found


def _hops(hops: LinkMatrix | None, a: str, b: str) -> int:
    return int(hops.cell[a, b]) if hops else 1


def _socket() -> dict[str, str]:
    """What joins the hosts of AMD's GPUs: assumed to be AMD's too."""
    return {"kind": str(parts()["sockets"]["AuthenticAMD"][0]["kind"])}


KEYS = (
    read("XGMI", "Infinity Fabric between two GPUs, where it is one hop"),
    read("PCIE", "over hosts"),
    read("Hops", "whether two GPUs are connected directly"),
    read("Numa Node", "the host of a GPU"),
    *no_effect("follows from kinds and hops", "Weight", "Numa Affinity"),
)

register(
    Importer(
        name="rocm-smi",
        title="the matrices of rocm-smi --showtopo",
        about="What `rocm-smi --showtopo` prints on a node of AMD GPUs.",
        leaves_open="Which GPU it is (`--set cluster.gpu=mi300x`), how many links join two GPUs, NICs, the network.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=("Sockets are taken to be joined as AMD's are.",),
    )
)
