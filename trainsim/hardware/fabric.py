"""
The network between nodes: leaves, spines and, where there is one, a core above pods.

With adaptive routing the uplinks of one leaf (and of one pod) are one link up and one link down: traffic spreads evenly
over them. With ECMP each uplink is a link of its own, and a hash puts every flow on one of them. Spines and cores
themselves never block; oversubscription shows in the capacity of a tier's uplinks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidTopology
from trainsim.hardware.ecmp import hashed, surviving

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FABRICS = {
    "none": "no network: one node only",
    "single_switch": "all NICs on one switch that never blocks",
    "fat_tree": "all NICs of neighbouring nodes on one leaf; leaves joined by spines",
    "rail_optimised": "NIC k of neighbouring nodes on leaf k of their pod; leaves joined by spines",
}


ROUTINGS = {
    "adaptive": "traffic spreads evenly over the uplinks of a leaf",
    "ecmp": "a hash puts each flow between two leaves on one uplink",
}


class Attached(NamedTuple):
    """Where flows enter or leave the network, as columns: node, NIC of the node, and rank."""

    node: Ints
    nic: Ints
    rank: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The network of ``nodes`` nodes with ``nics`` NICs of ``nic_bandwidth`` bytes/s (line rate, one direction) each.

    ``reachable`` is the part of a NIC's line rate that transfers reach, ``uplink_reachable`` that of the tiers above.
    ``nodes_per_leaf`` nodes share a leaf (or a set of leaves, one per rail); ``nodes_per_pod`` 0 means no core.
    ``spines`` 0 means as many as the leaves' uplinks fill. ``seed`` and ``flows_per_pair``, the flows over which two
    ranks spread what they send each other, count with ``routing`` ecmp. ``failed_uplinks`` are those out of service, as
    (switch, port): switches are the leaves, then the pods.
    ``sharp``: its switches can add up what GPUs send.
    """

    kind: str
    nodes: int
    nics: int
    nic_bandwidth: float
    reachable: float
    uplink_reachable: float
    latency: float
    nodes_per_leaf: int
    oversubscription: float = 1.0
    spines: int = 0
    nodes_per_pod: int = 0
    pod_oversubscription: float = 1.0
    routing: str = "adaptive"
    seed: int = 0
    flows_per_pair: int = 1
    failed_uplinks: tuple[tuple[int, int], ...] = ()
    sharp: bool = False

    @property
    def rails(self) -> int:
        """Leaves side by side over the same nodes."""
        return self.nics if self.kind == "rail_optimised" else 1

    @property
    def leaves(self) -> int:
        return 0 if self.kind == "none" else ceil(self.nodes / self.nodes_per_leaf) * self.rails

    @property
    def pods(self) -> int:
        """Pods joined by a core, or 0 if there is no core."""
        pods = ceil(self.nodes / self.nodes_per_pod) if self.nodes_per_pod else 0
        return pods if pods > 1 else 0

    @property
    def uplinked(self) -> int:
        """Leaves that have uplinks: none if there is only one leaf."""
        return self.leaves if self.leaves > 1 else 0

    @property
    def switches(self) -> int:
        """Leaves and pods that have uplinks."""
        return self.uplinked + self.pods

    @property
    def ports(self) -> Ints:
        """Uplinks of each leaf, then of each pod."""
        return np.repeat([self.uplinks_per_leaf, self.uplinks_per_pod], [self.uplinked, self.pods]).astype(np.int64)

    @property
    def uplinks_per_leaf(self) -> int:
        """Uplinks of a full leaf, each as fast as a NIC; one at least."""
        return max(1, round(self.ports_per_leaf / self.oversubscription))

    @property
    def uplinks_per_pod(self) -> int:
        """Uplinks of a full pod."""
        return max(1, round(self.nodes_per_pod * self.nics / self.pod_oversubscription))

    @property
    def hashes(self) -> bool:
        """Whether each uplink is a link of its own."""
        return self.routing == "ecmp"

    @property
    def links_per_switch(self) -> Ints:
        """Links in one direction above each leaf and each pod: one, or one per uplink."""
        return self.ports if self.hashes else np.ones(self.switches, np.int64)

    @property
    def links(self) -> int:
        """Directed links above the leaves: up and down of every leaf, then of every pod."""
        return 2 * int(self.links_per_switch.sum())

    @property
    def ports_per_leaf(self) -> int:
        """Downward ports of a full leaf."""
        return self.nodes_per_leaf * (1 if self.kind == "rail_optimised" else self.nics)

    @property
    def leaf_uplink(self) -> float:
        """Line rate of all uplinks of one leaf, in one direction, bytes/s."""
        return self.ports_per_leaf * self.nic_bandwidth / self.oversubscription

    @property
    def pod_uplink(self) -> float:
        """Line rate of all uplinks of one pod, in one direction, bytes/s."""
        return self.nodes_per_pod * self.nics * self.nic_bandwidth / self.pod_oversubscription

    @property
    def spine_count(self) -> int:
        """Spines, for the graph and the picture: as given, or as many switches of the leaf's size as are needed;
        equally many in each pod."""
        if not self.uplinked:
            return 0
        uplinks = self.ports_per_leaf / self.oversubscription
        spines = self.spines or max(1, ceil(self.leaves * uplinks / (2 * self.ports_per_leaf)))
        return ceil(spines / max(self.pods, 1)) * max(self.pods, 1)

    def leaf_of(self, node: Ints, nic: Ints) -> Ints:
        """The leaf on which NIC *nic* of *node* is."""
        block = node // self.nodes_per_leaf
        return block * self.nics + nic if self.kind == "rail_optimised" else block

    @property
    def working(self) -> Ints:
        """Uplinks of each leaf, then of each pod, that are in service."""
        failed = np.array([switch for switch, _ in self.failed_uplinks], np.int64)
        return self.ports - np.bincount(failed, minlength=self.switches)

    def line_rate(self) -> Floats:
        """Line rate of each directed link above the leaves, bytes/s; of a leaf's uplinks together, that of those in
        service. What is out of service keeps its own: nothing is sent there."""
        whole = np.repeat([self.leaf_uplink, self.pod_uplink], [self.uplinked, self.pods])
        if self.hashes:
            return np.repeat(whole / self.ports, 2 * self.ports)
        if self.failed_uplinks:
            working = self.working
            whole = np.where(working > 0, whole * working / self.ports, whole)
        return np.repeat(whole, 2)

    def switch_name(self, switch: int) -> str:
        """``leaf3`` or ``pod0``."""
        return f"leaf{switch}" if switch < self.uplinked else f"pod{switch - self.uplinked}"

    def spine_of(self, leaf: int, port: int) -> int:
        """The spine to which an uplink of a leaf leads: spines of the leaf's pod, one after the other."""
        in_pod = self.spine_count // max(self.pods, 1)
        pod = leaf // self.rails * self.nodes_per_leaf // self.nodes_per_pod if self.pods else 0
        return pod * in_pod + port % in_pod

    def names(self) -> list[str]:
        """Names of the links above the leaves, in order."""
        return [
            name
            for switch, links in enumerate(self.links_per_switch.tolist())
            for port in range(links)
            for name in self._both(switch, port)
        ]

    def _both(self, switch: int, port: int) -> tuple[str, str]:
        low, high = self.switch_name(switch), "spine" if switch < self.uplinked else "core"
        if self.hashes:
            low = f"{low}.port{port}"
            high = f"spine{self.spine_of(switch, port)}" if switch < self.uplinked else "core"
        return f"{low}>{high}", f"{high}>{low}"

    def name(self, link: int) -> str:
        """The name of one link above the leaves."""
        pair, down = divmod(link, 2)
        first = np.cumsum(self.links_per_switch) - self.links_per_switch
        switch = int(np.searchsorted(first, pair, side="right")) - 1
        return self._both(switch, pair - int(first[switch]))[down]

    def between(self, src: Attached, dst: Attached, flow: int = 0) -> Ints:
        """Links above the leaves that each pair crosses: columns leaf up, pod up, pod down, leaf down; -1 for none.

        *flow* counts those of a pair. Raises InvalidTopology where no uplink is left.
        """
        crossed = np.full((len(src.node), 4), -1, np.int64)
        if not self.uplinked:
            return crossed
        tiers = [(0, 3, self.leaf_of(src.node, src.nic), self.leaf_of(dst.node, dst.nic))]
        if self.pods:
            pods = [self.uplinked + ends.node // self.nodes_per_pod for ends in (src, dst)]
            tiers.append((1, 2, pods[0], pods[1]))
        first = np.cumsum(self.links_per_switch) - self.links_per_switch
        for up, down, a, b in tiers:
            far = np.flatnonzero(a != b)
            a, b = a[far], b[far]
            port = self._port(a, b, src.rank[far], dst.rank[far], flow=flow)
            crossed[far, up] = 2 * (first[a] + port)
            crossed[far, down] = 2 * (first[b] + port) + 1
        return crossed

    def _port(self, a: Ints, b: Ints, src: Ints, dst: Ints, *, flow: int) -> Ints:
        """The port that each flow takes up from its switch *a* and down to *b*; 0 where all of them are one link."""
        if self.failed_uplinks:
            self._refuse_cut(a, b)
        if not self.hashes or not len(a):
            return np.zeros(len(a), np.int64)
        ports, key = int(self.ports[a[0]]), (self.seed, flow, int(a[0] >= self.uplinked))
        port = hashed(key, src, dst, ports)
        return (
            surviving(key, src, dst, port=port, working=self._in_service(a, b, ports)) if self.failed_uplinks else port
        )

    def _in_service(self, a: Ints, b: Ints, ports: int) -> Bools:
        """Which ports work at both ends of each flow [flows, ports]."""
        works = np.ones((self.switches, int(self.ports.max())), np.bool_)
        works[tuple(np.array(self.failed_uplinks, np.int64).T)] = False
        both: Bools = works[a, :ports] & works[b, :ports]
        if not both.all(axis=None) and not both.any(axis=1).all():
            lost = int(np.flatnonzero(~both.any(axis=1))[0])
            raise InvalidTopology(
                f"{self.switch_name(int(a[lost]))} and {self.switch_name(int(b[lost]))} have no spine in common: "
                "uplinks to all of them are out of service at one end or the other"
            )
        return both

    def _refuse_cut(self, a: Ints, b: Ints) -> None:
        """Raise where a switch that is crossed has no uplink left."""
        cut = self.working == 0
        ends = np.concatenate([a, b])
        if cut.any() and cut[ends].any():
            name = self.switch_name(int(ends[cut[ends]][0]))
            raise InvalidTopology(f"{name} has no uplink left, and the devices on it must reach others")


def no_fabric(nodes: int) -> Fabric:
    """No network at all."""
    return Fabric(
        kind="none",
        nodes=nodes,
        nics=0,
        nic_bandwidth=0.0,
        reachable=1.0,
        uplink_reachable=1.0,
        latency=0.0,
        nodes_per_leaf=nodes,
    )


FABRIC_KEYS = tuple(
    f.name for f in fields(Fabric) if f.name not in ("nodes", "nics", "nic_bandwidth", "failed_uplinks")
)
