"""
The network between nodes: leaves, spines and, where there is one, a core above pods.

The uplinks of one leaf (and of one pod) are one link up and one link down: traffic spreads evenly over them, as
equal-cost multipath does on average. Spines and cores themselves never block; oversubscription shows in the capacity of
a tier's uplinks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FABRICS = {
    "none": "no network: one node only",
    "single_switch": "all NICs on one switch that never blocks",
    "fat_tree": "all NICs of neighbouring nodes on one leaf; leaves joined by spines",
    "rail_optimised": "NIC k of neighbouring nodes on leaf k of their pod; leaves joined by spines",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The network of ``nodes`` nodes with ``nics`` NICs of ``nic_bandwidth`` bytes/s (line rate, one direction) each.

    ``reachable`` is the part of a NIC's line rate that transfers reach, ``uplink_reachable`` that of the tiers above.
    ``nodes_per_leaf`` nodes share a leaf (or a set of leaves, one per rail); ``nodes_per_pod`` 0 means no core.
    ``spines`` 0 means as many as the leaves' uplinks fill.
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
    def links(self) -> int:
        """Directed links above the leaves: up and down of every leaf, then of every pod."""
        return 2 * (self.uplinked + self.pods)

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

    def line_rate(self) -> Floats:
        """Line rate of each directed link above the leaves, bytes/s."""
        return np.repeat([self.leaf_uplink, self.pod_uplink], [2 * self.uplinked, 2 * self.pods])

    def name(self, link: int) -> str:
        """The name of one link above the leaves."""
        number, down = divmod(link, 2)
        low, high = (f"leaf{number}", "spine")
        if number >= self.uplinked:
            low, high = (f"pod{number - self.uplinked}", "core")
        return f"{high}>{low}" if down else f"{low}>{high}"

    def names(self) -> list[str]:
        """Names of the links above the leaves, in order."""
        return [self.name(i) for i in range(self.links)]

    def between(self, src_node: Ints, src_nic: Ints, dst_node: Ints, dst_nic: Ints) -> Ints:
        """Links above the leaves that each pair crosses: columns leaf up, pod up, pod down, leaf down; -1 for none."""
        crossed = np.full((len(src_node), 4), -1, np.int64)
        if not self.uplinked:
            return crossed
        a, b = self.leaf_of(src_node, src_nic), self.leaf_of(dst_node, dst_nic)
        far = a != b
        crossed[far, 0] = 2 * a[far]
        crossed[far, 3] = 2 * b[far] + 1
        if self.pods:
            a, b = src_node // self.nodes_per_pod, dst_node // self.nodes_per_pod
            far = a != b
            crossed[far, 1] = 2 * (self.uplinked + a[far])
            crossed[far, 2] = 2 * (self.uplinked + b[far]) + 1
        return crossed


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


FABRIC_KEYS = tuple(f.name for f in fields(Fabric) if f.name not in ("nodes", "nics", "nic_bandwidth"))
