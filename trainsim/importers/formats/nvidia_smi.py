"""
``nvidia-smi topo -m``: how every GPU and NIC of a node is joined to every other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, read, register
from trainsim.importers.source import Source
from trainsim.importers.topology.likeness import Likeness
from trainsim.importers.topology.matrix import JoinedNames, LinkMatrix, plain_lines, read_matrix
from trainsim.importers.topology.node_facts import Nic, NodeParts, assume_collectives, say_node
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.places import placed
from trainsim.importers.topology.wires import Wire, wire

CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|PSB")
HEADER = re.compile(r"\s*GPU\d+(\s+[A-Za-z]|\s*$)")
LEGEND = re.compile(r"\s*(NIC\d{1,4})\s*:\s*(\S+)")
MOST_LINKS = 18
"""NVLinks of a GPU, at most: with more to its peers together they go through a switch."""
NEAR = ("PIX", "PSB", "PXB", "PHB", "NODE", "SYS", "SOC")
"""Ways over PCIe, the nearest first."""


def sniff(source: Source) -> float:
    """Sure of a header of GPUs above a row of GPU0 that begins with itself."""
    lines = plain_lines(source.text[:20_000])
    header = any(HEADER.match(line) for line in lines)
    return 0.9 if header and any(re.match(r"\s*GPU0\s+X\b", line) for line in lines) else 0.0


def load(source: Source) -> Findings:
    """A node: NVLinks, PCIe switches, sockets, NICs."""
    book = Notebook(source)
    lines = plain_lines(source.text)
    headers = [i for i, line in enumerate(lines) if HEADER.match(line) and not re.match(r"\s*\S+\s+X\b", line)]
    headers = [i for i in headers if not _is_row(lines[i])]
    if not headers:
        raise book.fail("no header with GPU0, GPU1, ... is in it; give the output of nvidia-smi topo -m as it is")
    if len(headers) > 1:
        raise book.fail(f"a second matrix begins here, after that of line {headers[0] + 1}; keep one", headers[1] + 1)
    matrix = read_matrix(book, lines, headers[0], CELL)
    legend = {match[1]: match[2] for line in lines[matrix.end :] if (match := LEGEND.match(line))}
    node = _node(book, matrix, legend)
    say_node(book, node, "topo -m")
    assume_collectives(book, node)
    book.leave_open("gpu", "the matrix does not say which GPU it is: --set cluster.gpu=NAME")
    return book.findings("nvidia-smi", [Likeness(file=source.shown)])


def _is_row(line: str) -> bool:
    """Whether it is of a device, which is X to itself, rather than a header."""
    words = line.split()[1:]
    return bool(words) and ("X" in words or bool(CELL.fullmatch(words[0])))


def _node(book: Notebook, matrix: LinkMatrix, legend: dict[str, str]) -> NodeParts:
    gpus = sorted((name for name in matrix.labels if name.startswith("GPU")), key=lambda name: int(name[3:]))
    others = sorted((name for name in matrix.labels if name not in gpus), key=_number)
    ours = {name: f"gpu{i}" for i, name in enumerate(gpus)}
    wires, switches = _nvlinks(book, matrix, gpus, ours)
    places = placed(book, matrix, gpus)
    nics = tuple(
        Nic(
            name=legend.get(name, name), on=places.on[name], physics=(("kind", "pcie"),), near=_near(matrix, name, gpus)
        )
        for name in others
    )
    pcie = [wire(ours[name], places.on[name], kind="pcie") for name in gpus]
    if others:
        book.use("NIC", f"{len(others)} NICs on {', '.join(dict.fromkeys(nic.on for nic in nics))}", matrix.header + 1)
    complexes = {"nvswitch": switches} if len(switches) == 1 and switches[0] != "nvswitch0" else {}
    return NodeParts(gpus=len(gpus), wires=(*wires, *pcie, *places.wires), nics=nics, complexes=complexes)


def _nvlinks(
    book: Notebook, matrix: LinkMatrix, gpus: Sequence[str], ours: dict[str, str]
) -> tuple[list[Wire], list[str]]:
    """(NVLinks, switches): GPUs that all tell the same number, more than they have for each peer, share a switch."""
    links = {(a, b): int(word[2:]) for a, b in combinations(gpus, 2) if (word := matrix.cell[a, b]).startswith("NV")}
    groups = JoinedNames(gpus)
    for a, b in links:
        groups.join(a, b)
    wires: list[Wire] = []
    switches: list[str] = []
    for group in (one for one in groups.all() if len(one) > 1):
        pairs = list(combinations(group, 2))
        told = {links.get(pair, 0) for pair in pairs}
        most = max(told)
        if len(told) == 1 and most * (len(group) - 1) > MOST_LINKS:
            switches.append(f"nvswitch{len(switches)}")
            wires += [wire(ours[name], switches[-1], kind="nvlink", lanes=most) for name in group]
            words = f"NV{most} between all {len(group)}: more links than a GPU has, so they go through NVSwitches"
            book.note("NV#", f"{words} (how many is not reported; drawn as one)", matrix.header + 1)
        else:
            wires += [wire(ours[a], ours[b], kind="nvlink", lanes=links[a, b]) for a, b in pairs if (a, b) in links]
            book.use("NV#", f"{sum(links.get(pair, 0) for pair in pairs)} links between {', '.join(group)}")
    return wires, switches


def _near(matrix: LinkMatrix, nic: str, gpus: Sequence[str]) -> int:
    ways = [matrix.cell[gpu, nic] for gpu in gpus]
    return min((NEAR.index(way) for way in ways if way in NEAR), default=len(NEAR))


def _number(name: str) -> tuple[int, str]:
    found = re.search(r"(\d+)$", name)
    return (int(found[1]) if found else 0, name)


KEYS = (
    read("NV#", "so many NVLinks: between two GPUs, or, where all tell as many and more than they have, to NVSwitches"),
    read("PIX", "both on one PCIe switch"),
    read("PXB", "on PCIe switches under another one"),
    read("PHB", "on one host"),
    read("NODE", "on one host"),
    read("SYS", "on different hosts"),
    read("NIC#", "a NIC, where it is near to; its rate is not reported"),
    read("CPU Affinity", "which GPUs share a host, where NUMA Affinity is missing"),
    read("NUMA Affinity", "the host of a GPU"),
    *no_effect("a memory that GPUs have on Grace", "GPU NUMA ID"),
)

register(
    Importer(
        name="nvidia-smi",
        title="the matrix of nvidia-smi topo -m",
        about="What `nvidia-smi topo -m` prints on a node, with or without colours, tabs and NICs.",
        leaves_open="Which GPU it is, the rates of NICs, the generation of PCIe (taken from the GPU), the network.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "A matrix that was cut, whose words run into each other or whose halves differ is refused, as are two.",
            "Where GPUs are joined by NVLink the matrix hides how PCIe joins them: NICs and affinities tell it.",
            "The generation of NVLink is that of the GPU (`--set cluster.gpu=NAME`).",
        ),
    )
)
