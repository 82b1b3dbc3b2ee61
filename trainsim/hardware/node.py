"""
One node of a cluster as a value: its devices, its cables and what travels on them.

Cables are duplex and each direction is a link of its own. Devices that traffic spreads over evenly (the NVSwitches of
a baseboard) are drawn one by one and act as one *complex*: a GPU's ports into it are one link in and one link out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from trainsim.hardware.storage import Drive, Host

if TYPE_CHECKING:
    import networkx as nx

KINDS = ("gpu", "nvswitch", "pcie", "host", "nic", "nvme")
FORWARDING = frozenset({"nvswitch", "pcie", "host"})  # a GPU, NIC or disk passes on nothing for others


@dataclass(frozen=True, slots=True)
class Cable:
    """A duplex connection. ``kind`` has a generation (nvlink3), ``family`` none (nvlink, pcie, c2c, socket, network).

    Line rate in bytes/s per direction, the part of it that transfers reach, latency in s.
    """

    a: str
    b: str
    kind: str
    family: str
    bandwidth: float
    reachable: float
    latency: float


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two devices or complexes: a resource that transfers share.

    The memory of a host and the cells of a drive are one each, whatever goes in or out; their latency is 0.
    """

    src: str
    dst: str
    family: str
    line_rate: float
    bandwidth: float
    latency: float


@dataclass(frozen=True, kw_only=True)
class Node:
    """The template that every node of a cluster repeats.

    ``devices`` maps each kind to its number, ``complexes`` a name to the devices that act as one. NICs are devices too;
    ``nic_bandwidth`` is the line rate of one, per direction, towards the network. ``layout`` places devices
    (name, x, y) in pictures; the others find their own. ``host`` is the memory of each host, ``drive`` each NVMe drive;
    None: nothing is known of them.
    """

    devices: tuple[tuple[str, int], ...]
    cables: tuple[Cable, ...]
    complexes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    nic_bandwidth: float = 0.0
    layout: tuple[tuple[str, float, float], ...] = ()
    host: Host | None = None
    drive: Drive | None = None

    def count(self, kind: str) -> int:
        """How many devices of *kind* there are."""
        return dict(self.devices).get(kind, 0)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All devices, GPUs first."""
        return tuple(f"{kind}{i}" for kind, number in self.devices for i in range(number))

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every direction of every cable, then what hosts and drives store."""
        return self.cabled + self.stores

    @cached_property
    def _stands_for(self) -> dict[str, str]:
        return {device: name for name, members in self.complexes for device in members}

    @cached_property
    def cabled(self) -> tuple[Link, ...]:
        """Every direction of every cable, cables into a complex joined; a cable's two directions are neighbours."""
        stands_for = self._stands_for
        joined: dict[tuple[str, str], list[Cable]] = {}
        for cable in self.cables:
            a, b = stands_for.get(cable.a, cable.a), stands_for.get(cable.b, cable.b)
            joined.setdefault((b, a) if (b, a) in joined else (a, b), []).append(cable)
        return tuple(
            Link(
                src=src,
                dst=dst,
                family=cables[0].family,
                line_rate=sum(c.bandwidth for c in cables),
                bandwidth=sum(c.bandwidth * c.reachable for c in cables),
                latency=max(c.latency for c in cables),
            )
            for (a, b), cables in joined.items()
            for src, dst in ((a, b), (b, a))
        )

    @property
    def nvlink_bandwidth(self) -> float:
        """Line rate of all NVLinks of the first GPU together, bytes/s in one direction."""
        return sum(link.line_rate for link in self.cabled if link.src == "gpu0" and link.family == "nvlink")

    @cached_property
    def stores(self) -> tuple[Link, ...]:
        """Memory of hosts (``host0>memory``) and cells of drives (``nvme0>flash``, at the rate of reading)."""
        out = []
        if self.host is not None:
            out += self._stores("host", "memory", self.host.bandwidth, self.host.reached)
        if self.drive is not None:
            out += self._stores("nvme", "flash", self.drive.read, self.drive.read)
        return tuple(out)

    def _stores(self, kind: str, family: str, line_rate: float, bandwidth: float) -> list[Link]:
        number = Counter(self._stands_for.get(f"{kind}{i}", f"{kind}{i}") for i in range(self.count(kind)))
        return [
            Link(src=src, dst=family, family=family, line_rate=n * line_rate, bandwidth=n * bandwidth, latency=0.0)
            for src, n in number.items()
        ]

    @cached_property
    def link_graph(self) -> nx.DiGraph[str]:
        """Devices and complexes joined by `cabled`: what routing sees; edges have ``index`` and ``latency``."""
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        inside = {device for _, members in self.complexes for device in members}
        graph.add_nodes_from((n, {"kind": kind_of(n)}) for n in self.names if n not in inside)
        graph.add_nodes_from((name, {"kind": kind_of(members[0])}) for name, members in self.complexes)
        for i, link in enumerate(self.cabled):
            graph.add_edge(link.src, link.dst, index=i, latency=link.latency, family=link.family)
        return graph

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


def kind_of(device: str) -> str:
    """The kind of a device by its name.

    >>> kind_of("nvswitch3")
    'nvswitch'
    """
    return device.rstrip("0123456789")
