"""Which part of a communicator's bytes leaves the node: from the layout of ranks and the machine."""

from __future__ import annotations

import numpy as np

from trainsim.contracts.groups import Peers
from trainsim.contracts.system import Ints
from trainsim.hardware.cluster import Cluster
from trainsim.parallel.mesh import Mesh
from trainsim.program.network import Network


class Hops:
    """For an operation of a communicator: ranks per group, and the part of what they send that goes over the network.

    In an all-to-all every member sends to every other one, in all other collectives to the next one, as on a ring that
    goes through one node after the other.
    """

    def __init__(self, cluster: Cluster, network: Network):
        self._cluster = cluster
        self._network = network
        self._crossing: dict[tuple[Peers, bool], float] = {}

    @property
    def mesh(self) -> Mesh:
        return self._network.mesh

    def __call__(self, communicator: Peers, operation: str) -> tuple[int, float]:
        if not self._network.has(communicator):
            return 1, 0.0
        key = communicator, operation == "all_to_all"
        members = self._network.gpu_of(self._network.members(communicator))
        if key not in self._crossing:
            crossing = self._of_pairs if operation == "all_to_all" else self._of_neighbours
            self._crossing[key] = crossing(members)
        return members.shape[1], self._crossing[key]

    def _of_neighbours(self, members: Ints) -> float:
        source = np.sort(members, axis=1)
        return float(self._cluster.crosses_network(source.ravel(), np.roll(source, -1, axis=1).ravel()).mean())

    def _of_pairs(self, members: Ints) -> float:
        """Of n - 1 others, those that are in another node: all but the rest of the own one."""
        nodes = np.sort(self._cluster.domain_of(members), axis=1)
        group = np.repeat(np.arange(len(nodes)), nodes.shape[1])
        _, together = np.unique(np.stack([group, nodes.ravel()]), axis=1, return_counts=True)
        pairs, near = float(nodes.size * (nodes.shape[1] - 1)), float((together * (together - 1)).sum())
        return (pairs - near) / pairs
