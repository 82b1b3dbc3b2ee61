"""
The NVLinks in NCCL's topology XML, and the links between its sockets.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from trainsim.errors import shorten
from trainsim.importers.formats.nccl_topology_devices import Gpu, NcclMachine
from trainsim.importers.topology.generations import architecture, physics_of, socket_link
from trainsim.importers.topology.node_facts import number
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.safe_xml import Element
from trainsim.importers.topology.wires import Wire, wire

SWITCH, BRIDGE = "0x0680", "0x068001"
MOST_LINKS = 1024


def nvlinks(book: Notebook, machine: NcclMachine) -> tuple[list[Wire], int]:
    """(Cables, number of NVSwitches). Links of both ends are one cable; what only one end tells is told."""
    places = {gpu.busid.lower(): i for i, gpu in enumerate(machine.gpus)}
    switches: dict[str, int] = {}
    to_switch: list[tuple[int, int, int]] = []
    between: dict[tuple[int, int], int] = {}
    wires: list[Wire] = []
    for i, gpu in enumerate(machine.gpus):
        for link in gpu.element.all("nvlink") if gpu.element else ():
            count, target = _count(book, link), link.get("target").lower()
            kind = link.get("tclass") or ("0x0302" if target in places else "")
            if kind.startswith(BRIDGE):
                wires.append(wire(f"gpu{i}", _host(machine, gpu), **_lanes(machine, count)))
            elif kind.startswith(SWITCH):
                to_switch.append((i, switches.setdefault(target, len(switches)), count))
            elif target in places and places[target] != i:
                between[i, places[target]] = between.get((i, places[target]), 0) + count
            else:
                _tell_lost(book, link, count, itself=places.get(target) == i)
    joined: dict[tuple[int, int], int] = {}
    for i, k, count in to_switch:
        joined[i, k] = joined.get((i, k), 0) + count
    wires += [wire(f"gpu{i}", f"nvswitch{k}", **_lanes(machine, count)) for (i, k), count in joined.items()]
    wires += [wire(f"gpu{a}", f"gpu{b}", **_lanes(machine, count)) for (a, b), count in _pairs(book, between).items()]
    if wires:
        book.use("gpu.nvlink", f"{len(joined)} links to {len(switches)} NVSwitches, {len(wires) - len(joined)} others")
    return wires, len(switches)


def sockets(machine: NcclMachine) -> list[Wire]:
    """Links between every two hosts, by their processors."""
    if len(machine.hosts) < 2:
        return []
    first = machine.hosts[0]
    model = number(first.get("modelid"), 0, 1 << 16) or 0
    physics = socket_link(first.get("vendor"), model)
    return [wire(f"host{a}", f"host{b}", **physics) for a, b in combinations(range(len(machine.hosts)), 2)]


def _count(book: Notebook, link: Element) -> int:
    count = number(link.get("count", "1"), 1, MOST_LINKS)
    if count is None:
        shown = shorten(link.get("count"))
        raise book.fail(f"nvlink.count is {shown}; it is a number of links from 1 to {MOST_LINKS}", link.line)
    return count


def _lanes(machine: NcclMachine, count: int) -> dict[str, Any]:
    generation = architecture(machine.sm)
    if generation and "nvlink" in generation:
        return physics_of("nvlink", count, generation)
    return {"kind": "nvlink", "lanes": count}


def _pairs(book: Notebook, between: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """Links between two GPUs, each once; the larger number where the two ends tell different ones."""
    pairs: dict[tuple[int, int], int] = {}
    for (a, b), count in between.items():
        back = between.get((b, a))
        if back != count:
            words = f"gpu{a} tells {count} links to gpu{b}, which tells {back or 'none'} back; the larger is taken"
            book.warn("gpu.nvlink", words)
        pairs[min(a, b), max(a, b)] = max(count, back or 0)
    return pairs


def _tell_lost(book: Notebook, link: Element, count: int, *, itself: bool) -> None:
    whom = "the GPU itself" if itself else f"{link.get('target') or 'nothing'}, which is not in the file"
    words = f"not modelled: {count} links to {whom}; write them under node.links if you know where they go"
    book.warn("gpu.nvlink", words, link.line)


def _host(machine: NcclMachine, gpu: Gpu) -> str:
    """The host above a GPU."""
    above = {one.a: one.b for one in machine.wires if not one.a.startswith("gpu")}
    on = gpu.on
    while not on.startswith("host"):
        on = above[on]
    return on
