"""Which part of a communicator's hops leaves the node: from the layout of ranks and the machine."""

from __future__ import annotations

import numpy as np

from trainsim.contracts.groups import Peers
from trainsim.hardware.cluster import Cluster
from trainsim.parallel.mesh import Mesh
from trainsim.program.network import Network


class Hops:
    """For a communicator: ranks per group, and the part of the hops from each member to the next (in rank order, as
    a ring) that goes over the network."""

    def __init__(self, cluster: Cluster, network: Network):
        self._cluster = cluster
        self._network = network
        self._known: dict[Peers, tuple[int, float]] = {}

    @property
    def mesh(self) -> Mesh:
        return self._network.mesh

    def __call__(self, communicator: Peers) -> tuple[int, float]:
        if communicator not in self._known:
            self._known[communicator] = self._work_out(communicator)
        return self._known[communicator]

    def _work_out(self, communicator: Peers) -> tuple[int, float]:
        if not self._network.has(communicator):
            return 1, 0.0
        members = self._network.gpu_of(self._network.members(communicator))
        crosses = self._cluster.crosses_network(members.ravel(), np.roll(members, -1, axis=1).ravel())
        return members.shape[1], float(crosses.mean())
