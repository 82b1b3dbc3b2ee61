"""
A node as files of other tools describe it, on its way to the ``node`` of a topology.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainsim.hardware.node import KINDS, kind_of
from trainsim.hardware.node_reader import MOST_GPUS
from trainsim.hardware.ranges import shorten
from trainsim.importers.topology.notebook import Notebook
from trainsim.importers.topology.wires import Physics, Wire, entries

COUNTED = tuple(kind for kind in KINDS if kind not in ("gpu", "nic"))
NO_FABRIC = "nothing here describes the network: one non-blocking switch is assumed; add a file of the network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network card: what it is called, the device that it hangs on, its cable there, and its rate in Gb/s (None:
    nobody says)."""

    name: str
    on: str
    physics: Physics
    rate: float | None = None
    near: int = 0
    """How near it is to a GPU: smaller is nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """A node: how many GPUs, the cables among devices, NICs, and devices that act as one."""

    gpus: int
    wires: tuple[Wire, ...]
    nics: tuple[Nic, ...] = ()
    complexes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def say_node(book: Notebook, node: NodeParts, because: str) -> None:
    """Write the facts of *node*, which the file's *because* says, into *book*."""
    if not 1 <= node.gpus <= MOST_GPUS:
        raise book.fail(f"{node.gpus} GPUs in a node; there are 1 to {MOST_GPUS}")
    nics = chosen(book, node.nics, node.gpus)
    named = {end for one in node.wires if one.kind != "baseboard" for end in (one.a, one.b)} | {nic.on for nic in nics}
    counts = Counter(kind_of(name) for name in named)
    book.say("gpus_per_node", node.gpus, because)
    devices = {kind: counts[kind] for kind in COUNTED if counts[kind]}
    book.say("node.devices", devices or None, because)
    if node.complexes:
        book.say("node.complexes", {name: shorten(list(of)) for name, of in node.complexes.items()}, because)
    book.say("node.links", entries(node.wires), because)
    if nics:
        _say_nics(book, nics, because)
        book.assume("fabric.kind", "single_switch", NO_FABRIC)
    else:
        book.note("NICs", "the file has none: one node only, unless node.nics and fabric say otherwise")


def assume_collectives(book: Notebook, node: NodeParts) -> None:
    """The constants of collectives where GPUs have nothing but PCIe between them."""
    if node.gpus > 1 and not any(_is_nvlink(one) for one in node.wires):
        book.assume("collectives", "pcie", "no NVLink: the constants of collectives over PCIe")


def chosen(book: Notebook, nics: Sequence[Nic], gpus: int) -> list[Nic]:
    """The NICs that GPUs use: the fastest, and of too many for an even share those nearest to GPUs; others are told."""
    fastest = max((nic.rate or 0.0 for nic in nics), default=0.0)
    kept = [nic for nic in nics if (nic.rate or 0.0) == fastest]
    if slow := [nic for nic in nics if nic not in kept]:
        rates = ", ".join(f"{nic.name} ({nic.rate or 0:g} Gb/s)" for nic in slow)
        book.warn("net", f"not modelled: NICs slower than {fastest:g} Gb/s: {rates}")
    while len(kept) > gpus and len(kept) % gpus:
        farthest = max(nic.near for nic in kept)
        far = [nic for nic in kept if nic.near == farthest]
        if len(far) == len(kept):
            far = kept[len(kept) // gpus * gpus :]
        names = ", ".join(nic.name for nic in far)
        book.warn("net", f"not modelled: {len(kept)} NICs cannot be shared evenly by {gpus} GPUs; left out: {names}")
        kept = [nic for nic in kept if nic not in far]
    return kept


def _say_nics(book: Notebook, nics: Sequence[Nic], because: str) -> None:
    rate = nics[0].rate
    physics, most = Counter(nic.physics for nic in nics).most_common(1)[0]
    if most < len(nics):
        others = ", ".join(nic.name for nic in nics if nic.physics != physics)
        book.warn("net", f"not modelled: NICs with different cables to the node; {others} are treated like the others")
    book.say("node.nics.count", len(nics), because)
    book.say("node.nics.attach", _attach([nic.on for nic in nics]), because)
    for key, value in physics:
        book.say(f"node.nics.{key}", value, because)
    if rate:
        book.say("node.nics.bandwidth", f"{rate:g}Gbps", because)
    else:
        words = "no file gives the rate of the NICs; --set cluster.nic_bandwidth=200Gbps, or a file of the network"
        book.leave_open("node.nics.bandwidth", words)


def _attach(on: list[str]) -> str | list[str]:
    """The devices that NICs hang on: as a range where that shares them out in the same way, else one by one."""
    distinct = list(dict.fromkeys(on))
    shared = [distinct[i * len(distinct) // len(on)] for i in range(len(on))] == on
    of_a_kind = len({kind_of(name) for name in distinct}) == 1 and distinct == sorted(distinct, key=_number_of)
    return shorten(distinct) if shared and of_a_kind else on


def _number_of(device: str) -> int:
    return int(device.removeprefix(kind_of(device)))


def _is_nvlink(one: Wire) -> bool:
    return one.kind.startswith(("nvlink", "infinity", "baseboard", "c2c"))


def number(text: str, low: int, high: int) -> int | None:
    """*text* as a whole number from *low* to *high*; None if it is none.

    >>> number("18", 1, 64), number("0x10", 0, 64), number("many", 0, 1)
    (18, 16, None)
    """
    try:
        value = int(text, 0)
    except ValueError:
        return None
    return value if low <= value <= high else None
