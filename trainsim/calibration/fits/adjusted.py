"""A cluster with other rates and constants: what a fit tries, without building a machine for each try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainsim.collectives import Bools, Floats, Ints
from trainsim.hardware.cluster import Cluster

NETWORK = "network"


@dataclass(frozen=True, eq=False)
class Adjusted:
    """*cluster* with its links within a node *local* times as fast, its NICs *network* times, and *constants*."""

    cluster: Cluster
    local: float
    network: float
    constants: Mapping[str, float]

    @property
    def ranks(self) -> int:
        return self.cluster.ranks

    @property
    def gpus_per_node(self) -> int:
        return self.cluster.gpus_per_node

    @property
    def flows_per_pair(self) -> int:
        return self.cluster.flows_per_pair

    @property
    def line_rate(self) -> Floats:
        return self.cluster.line_rate

    @property
    def is_network(self) -> Bools:
        return self.cluster.is_network

    @property
    def nvls(self) -> bool:
        return self.cluster.nvls

    @property
    def sharp(self) -> bool:
        return self.cluster.sharp

    @cached_property
    def bandwidth(self) -> Floats:
        """What links reach, at most what they carry on paper; uplinks of leaves stay as they are."""
        cluster, inside = self.cluster, families(self.cluster)
        factors = [
            self.network if link.family == NETWORK else self.local if link.family in inside else 1.0
            for link in cluster.local_links
        ]
        above = np.ones(cluster.fabric.links)
        factor = np.concatenate([np.tile(np.array(factors), cluster.nodes), above])
        return np.asarray(np.minimum(cluster.bandwidth * factor, cluster.line_rate))

    def domain_of(self, rank: Ints, /) -> Ints:
        return self.cluster.domain_of(rank)

    def rings(self, members: Ints, /) -> tuple[tuple[Ints, float], ...]:
        return self.cluster.rings(members)

    def routes(self, src: Ints, dst: Ints, flow: int = 0, /) -> tuple[Ints, Ints]:
        """Those of the cluster, each looked up once: every try asks for the same ones."""
        memo = self.cluster.memo
        key = ("routes", src.tobytes(), dst.tobytes(), flow)
        if key not in memo:
            memo[key] = self.cluster.routes(src, dst, flow)
        found: tuple[Ints, Ints] = memo[key]
        return found


def families(cluster: Cluster) -> frozenset[str]:
    """The sorts of links that join the GPUs of a node: NVLink where there is some, else PCIe and what joins sockets.

    >>> from trainsim.hardware.cluster import load_topology
    >>> sorted(families(load_topology("dgx_a100"))), sorted(families(load_topology("pcie_4gpu")))
    (['nvlink'], ['pcie', 'socket'])
    """
    has_nvlink = any(link.family == "nvlink" for link in cluster.node.links)
    return frozenset({"nvlink"} if has_nvlink else {"pcie", "socket"})
