"""What is kept off the GPUs: in memory of hosts and on drives, node by node, and whether there is room."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainsim.analysis.lanes import Lanes
from trainsim.contracts.allocation import Allocation
from trainsim.hardware.cluster import Cluster

GIGA = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Memory of the hosts of a node, or its drives: bytes on the fullest node, and what one node has room for."""

    name: str
    peak_per_node: float = 0.0
    capacity: float = 0.0

    @property
    def fits(self) -> bool:
        return self.peak_per_node <= self.capacity

    @property
    def complaint(self) -> str:
        """In words that it does not fit; nothing if it does."""
        if self.fits:
            return ""
        need, have = self.peak_per_node / GIGA, self.capacity / GIGA
        return f"Does not fit: {self.name} of a node would hold {need:.1f} GiB of {have:.1f} GiB."


NO_HOST, NO_DRIVES = Store(name="host memory"), Store(name="drives")


def stores(lanes: Lanes, cluster: Cluster, allocation: Allocation) -> tuple[Store, Store]:
    """(Memory of hosts, drives) of *cluster*, with what the ranks of a run keep there for the whole step."""
    node, host, drive = cluster.node, cluster.node.host, cluster.node.drive
    where = cluster.node_of(allocation.gpu_of(np.arange(lanes.ranks)))

    def fullest(kind: str) -> float:
        per_program = np.array([getattr(program.memory, kind) for program in lanes.programs])
        return float(np.bincount(where, per_program[lanes.program_of]).max(initial=0.0))

    return (
        replace(NO_HOST, peak_per_node=fullest("host"), capacity=host.memory * node.count("host") if host else 0.0),
        replace(
            NO_DRIVES, peak_per_node=fullest("nvme"), capacity=drive.capacity * node.count("nvme") if drive else 0.0
        ),
    )
