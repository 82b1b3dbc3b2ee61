"""
Where GPUs and NICs of a node hang, from the ways between every two of them: PCIe switches and hosts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from trainsim.importers.topology.generations import parts
from trainsim.importers.topology.matrix import JoinedNames, LinkMatrix
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.wires import Wire, wire

SWITCH, BRIDGES, HOST = ("PIX", "PSB"), ("PIX", "PSB", "PXB"), ("PIX", "PSB", "PXB", "PHB", "NODE")


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingPlaces:
    """The device that each GPU and NIC hangs on, and the cables above: of switches, and between hosts."""

    on: Mapping[str, str]
    wires: tuple[Wire, ...]


def placed(book: Notebook, matrix: LinkMatrix, gpus: Sequence[str]) -> HangingPlaces:
    """The places of all that *matrix* names."""
    hosts = _hosts(book, matrix, gpus)
    host_of = {name: f"host{k}" for k, group in enumerate(hosts) for name in group}
    on: dict[str, str] = dict(host_of)
    wires: list[Wire] = []
    switches = 0
    inner = [set(group) for group in _joined(matrix, SWITCH)]
    for group in _joined(matrix, BRIDGES):
        if len(group) < 2:
            continue
        outer = f"pcie{switches}"
        wires.append(wire(outer, host_of[group[0]], kind="pcie"))
        switches += 1
        on.update(dict.fromkeys(group, outer))
        for small in inner:
            if small < set(group) and len(small) > 1:
                name = f"pcie{switches}"
                wires.append(wire(name, outer, kind="pcie"))
                switches += 1
                on.update(dict.fromkeys(small, name))
    socket = parts()["unknown_socket"]["kind"]
    wires += [wire(f"host{a}", f"host{b}", kind=socket) for a, b in combinations(range(len(hosts)), 2)]
    if len(hosts) > 1:
        book.note(
            "SYS", f"{len(hosts)} hosts, joined by {socket} links: the matrix does not say whose processors these are"
        )
    return HangingPlaces(on=on, wires=tuple(wires))


def _joined(matrix: LinkMatrix, ways: Sequence[str]) -> list[list[str]]:
    groups = JoinedNames(matrix.labels)
    for (a, b), word in matrix.cell.items():
        if word in ways:
            groups.join(a, b)
    return groups.all()


def _hosts(book: Notebook, matrix: LinkMatrix, gpus: Sequence[str]) -> list[list[str]]:
    """Names by host: those that the ways or their affinity put together."""
    groups = JoinedNames(matrix.labels)
    for (a, b), word in matrix.cell.items():
        if word in HOST:
            groups.join(a, b)
    affinity = {gpu: _affinity(matrix, gpu) for gpu in gpus}
    for a, b in combinations(gpus, 2):
        if affinity[a] is not None and affinity[a] == affinity[b] and matrix.cell[a, b] not in ("SYS", "SOC"):
            groups.join(a, b)
    hosts = groups.all()
    unknown = [gpu for gpu in gpus if affinity[gpu] is None]
    if (
        len(hosts) > 1
        and len(unknown) == len(gpus)
        and not any(word in ("SYS", "SOC") for word in matrix.cell.values())
    ):
        book.note("hosts", "nothing says which GPUs share a host: one host is assumed")
        return [list(matrix.labels)]
    if any(affinity.values()):
        book.use("Affinity", "which GPUs share a host", matrix.header + 1)
    return sorted(hosts, key=lambda group: min((gpus.index(name) for name in group if name in gpus), default=len(gpus)))


def _affinity(matrix: LinkMatrix, gpu: str) -> str | None:
    """The NUMA node of a GPU, else its processors; None where the matrix has neither."""
    rest = matrix.rest.get(gpu, ())
    numa = "NUMA" in matrix.behind and len(rest) > 1 and re.fullmatch(r"[\d,-]+", rest[1])
    if numa:
        return f"numa {rest[1]}"
    return rest[0] if rest and re.fullmatch(r"\d[\d,-]*", rest[0]) else None
