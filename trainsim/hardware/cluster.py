"""
A cluster: one node described in full, how many there are, and the network between them.

Large clusters are never built device by device: links are numbered by arithmetic (those of node 0, of node 1, ...,
then those of the fabric) and routes are looked up in the one routed node. The graph of the whole machine is there when
asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainsim.documents.catalogue import Spec
from trainsim.documents.document import Document, canonical
from trainsim.hardware.binding import binding_links
from trainsim.hardware.fabric import Fabric
from trainsim.hardware.gpu import GPU
from trainsim.hardware.naming import find_links, link_name
from trainsim.hardware.node import Link, Node
from trainsim.hardware.node_ways import NodeWays, node_ways, routes_of
from trainsim.hardware.ragged import expand_rows
from trainsim.hardware.rings import rings
from trainsim.hardware.routing import NodeRoutes, node_routes
from trainsim.hardware.storage_ways import storage_ways
from trainsim.hardware.topology import Changes, Topology, find_topology, gpu_of, opened, read_topology, topology_names

if TYPE_CHECKING:
    import networkx as nx

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, repr=False)
class Cluster:
    """Nodes of GPUs and the links between them; rank r is GPU ``r % gpus_per_node`` of node ``r // gpus_per_node``.

    Every direction of a link is a resource with a number; all arrays over links are in that order. Bandwidths in
    bytes/s. ``reserved_memory`` are the bytes of each GPU that others keep, ``price_per_gpu_hour`` is in a
    currency of the user's choice (None: nobody said). ``failed_nics`` are those out of service: (node, NIC).
    """

    name: str
    description: str
    source: str
    gpu: GPU
    nodes: int
    node: Node
    fabric: Fabric
    nvls: bool
    constant_values: tuple[tuple[str, float], ...]
    reserved_memory: float = 0.0
    price_per_gpu_hour: float | None = None
    failed_nics: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        return f"<Cluster {self.name}: {self.nodes} x {self.gpus_per_node} {self.gpu.name}>"

    @property
    def gpus_per_node(self) -> int:
        return self.node.count("gpu")

    @property
    def nics_per_node(self) -> int:
        return self.fabric.nics

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def flows_per_pair(self) -> int:
        """Flows over which two ranks spread what they send each other: each has a way of its own."""
        return self.fabric.flows_per_pair if self.fabric.hashes else 1

    @property
    def gpus(self) -> int:
        """The same as `ranks`."""
        return self.ranks

    @property
    def memory_per_gpu(self) -> float:
        """Bytes that a job can have of each GPU: what programs see of its memory, less what others keep.

        >>> load_topology("dgx_h100", reserved_memory="50%").memory_per_gpu / 2**30
        39.6
        """
        return self.gpu.usable_memory - self.reserved_memory

    @property
    def sharp(self) -> bool:
        """Whether the switches of the network can add up what GPUs send."""
        return self.fabric.sharp

    @property
    def has_network(self) -> bool:
        return self.fabric.kind != "none"

    @cached_property
    def memo(self) -> dict[object, Any]:
        """What others have worked out about this machine, by keys of their own; not a part of the value."""
        return {}

    @cached_property
    def constants(self) -> Mapping[str, float]:
        """Constants of collectives on this fabric (docs/topologies.md): seconds or ratios."""
        return dict(self.constant_values)

    @cached_property
    def local_links(self) -> tuple[Link, ...]:
        """The links of one node: its own, then each NIC's cable out and in."""
        fabric = self.fabric
        cables = [(f"nic{i}", "leaf") for i in range(fabric.nics)]
        rate = fabric.nic_bandwidth
        return self.node.links + tuple(
            Link(
                src=a,
                dst=b,
                family="network",
                line_rate=rate,
                bandwidth=rate * fabric.reachable,
                latency=fabric.latency,
            )
            for cable in cables
            for a, b in (cable, cable[::-1])
        )

    @property
    def links_per_node(self) -> int:
        return len(self.node.links) + 2 * self.fabric.nics

    @property
    def links(self) -> int:
        """Directed links: ``node * links_per_node + local`` first, then those of the fabric."""
        return self.nodes * self.links_per_node + self.fabric.links

    @cached_property
    def line_rate(self) -> Floats:
        """What each link carries on paper."""
        return self._per_link([link.line_rate for link in self.local_links], self.fabric.line_rate())

    @cached_property
    def bandwidth(self) -> Floats:
        """What transfers reach on each link: the line rate times the reachable part of its kind."""
        above = self.fabric.line_rate() * self.fabric.uplink_reachable
        return self._per_link([link.bandwidth for link in self.local_links], above)

    @cached_property
    def is_network(self) -> Bools:
        """Links between NICs, leaves and spines."""
        local = np.array([link.family == "network" for link in self.local_links], np.bool_)
        return np.concatenate([np.tile(local, self.nodes), np.ones(self.fabric.links, np.bool_)])

    @cached_property
    def owner_of(self) -> Ints:
        """The GPU without which nothing uses the link (its port, its lane, a NIC it shares with nobody), else -1."""
        owner = self.ways.owner
        per_node = np.arange(self.nodes, dtype=np.int64)[:, None] * self.gpus_per_node + owner
        local = np.where(owner >= 0, per_node, -1).ravel()
        return np.concatenate([local, np.full(self.fabric.links, -1, np.int64)])

    @cached_property
    def binding(self) -> Bools:
        """Links that can be the tightest of a way; the others never slow anybody (unless something is broken)."""
        return binding_links(self.local_links, self.ways, self.fabric)

    @cached_property
    def routed(self) -> NodeRoutes:
        """The ways through one node."""
        return node_routes(self.node, self.has_network)

    @cached_property
    def ways(self) -> NodeWays:
        """The same node by node, with what is out of service."""
        return node_ways(self)

    def node_of(self, rank: Ints) -> Ints:
        """The node of each rank."""
        return np.asarray(rank, np.int64) // self.gpus_per_node

    def domain_of(self, rank: Ints) -> Ints:
        """The NVLink or PCIe domain of each rank: its node (which is the whole rack of an NVL72)."""
        return self.node_of(rank)

    def nic_of(self, rank: Ints) -> Ints:
        """The NIC, by its number in the node, that each rank uses; -1 without a network."""
        node, gpu = np.divmod(np.asarray(rank, np.int64), self.gpus_per_node)
        return np.asarray(self.ways.nic(node, gpu), np.int64)

    def crosses_network(self, src: Ints, dst: Ints) -> Bools:
        """Whether what each pair sends leaves its domain and goes over NICs."""
        crosses: Bools = self.domain_of(src) != self.domain_of(dst)
        return crosses

    def routes(self, src: Ints, dst: Ints, flow: int = 0) -> tuple[Ints, Ints]:
        """(Index of the pair, link) for every link that the bytes of each pair cross, in order; *flow* counts those of
        a pair, where ECMP gives each a way of its own.

        A rank reaches itself over no link. Raises InvalidTopology for ranks that are not there, or if a pair needs a
        network that is not there or out of service.
        """
        return routes_of(self, src, dst, flow)

    def storage(self, operation: str, ranks: Ints) -> tuple[Ints, Ints, Floats, Ints]:
        """(Index of the rank, link, bytes on it per byte, parts of it of which one rank reaches one) of an offload.

        *operation* is one of ``storage_ways.OFFLOADS``. Raises InvalidTopology if the machine has no such storage.
        """
        ways = storage_ways(self.node, operation)
        node, gpu = np.divmod(np.asarray(ranks, np.int64), self.gpus_per_node)
        begin = np.searchsorted(ways.gpu, np.arange(self.gpus_per_node + 1))
        index, use = expand_rows(begin, np.arange(len(ways.gpu)), [(gpu, np.zeros_like(gpu))])
        return index, ways.link[use] + node[index] * self.links_per_node, ways.share[use], ways.parts[use]

    def rings(self, members: Ints) -> tuple[tuple[Ints, float], ...]:
        """Orders of a group inside one domain in which neighbours are linked directly, and the part of a ring
        collective that each carries (parts sum to 1). On a switch: the order given, alone."""
        local = tuple(int(r) for r in np.asarray(members, np.int64) % self.gpus_per_node)
        base = np.asarray(members, np.int64)
        return tuple((base[list(order)], share) for order, share in rings(self.node, local))

    def ring_order(self, members: Ints) -> Ints:
        """The first of `rings`."""
        return self.rings(members)[0][0]

    @property
    def nvlink_bandwidth(self) -> float:
        """Line rate of all NVLinks of a GPU together, bytes/s in one direction."""
        return self.node.nvlink_bandwidth

    def link_name(self, link: int) -> str:
        """The name of a link, such as ``node3.gpu0>nvswitch`` or ``node3.nic0>leaf0``."""
        return link_name(self, int(link))

    def find_links(self, name: str) -> Ints:
        """The links that a name stands for: one link, or all of a device (``node3.nic0``, ``node3``, ``leaf0``)."""
        return find_links(self, name)

    @cached_property
    def node_graph(self) -> nx.DiGraph[str]:
        """One node, device by device: ``kind`` on nodes; ``kind``, ``bandwidth`` (line rate), ``latency`` on edges."""
        from trainsim.hardware.graphs import node_graph

        return node_graph(self)

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The whole machine, device by device, as `node_graph` plus leaves, spines and cores."""
        from trainsim.hardware.graphs import cluster_graph

        return cluster_graph(self)

    def draw(self) -> Any:
        """A matplotlib Figure of one node and the network."""
        from trainsim.hardware.draw import draw

        return draw(self)

    def _per_link(self, local: list[float], above: Floats) -> Floats:
        return np.concatenate([np.tile(np.array(local, np.float64), self.nodes), above])

    def __hash__(self) -> int:
        return hash(
            (self.name, self.nodes, self.gpu.name, self.node, self.fabric, self.constant_values, self.failed_nics)
        )

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


def load_topology(
    topology: Spec, *, nodes: int | None = None, overrides: Mapping[str, Any] | None = None, **fields: Any
) -> Cluster:
    """The cluster that *topology* describes (a name, a path, or a mapping with a ``base``), with some of its fields
    replaced: by keyword or in *overrides*, all that a scenario's ``cluster:`` takes.

    >>> cluster = load_topology("dgx_h100", nodes=4, nic_bandwidth="200Gbps")
    >>> cluster.ranks, cluster.link_name(int(cluster.find_links("node3.nic0")[0]))
    (32, 'node3.pcie0>nic0')
    """
    values = {**(overrides or {}), **fields, **({} if nodes is None else {"nodes": nodes})}
    return build_cluster(find_topology(topology), Changes(values=values))


def build_cluster(document: Document, changes: Changes) -> Cluster:
    """The cluster of a topology's *document* with *changes*; the same machine is one value, so that what was worked out
    about it once is there."""
    rest = {name: value for name, value in changes.values.items() if name != "gpu"}
    key = document, gpu_of(opened(document, changes)), canonical(rest)
    if key not in _LOADED:
        _LOADED[key] = _cluster(read_topology(document, changes))
        while len(_LOADED) > MOST_LOADED:
            del _LOADED[next(iter(_LOADED))]
    return _LOADED[key]


_LOADED: dict[object, Cluster] = {}
MOST_LOADED = 64


def _cluster(read: Topology) -> Cluster:
    same = {f.name: getattr(read, f.name) for f in fields(Topology) if f.name != "constants"}
    return Cluster(**same, constant_values=read.constants)


__all__ = ["Cluster", "build_cluster", "load_topology", "topology_names"]
