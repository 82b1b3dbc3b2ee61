"""
NVLSTree: switches that add up within nodes and a double binary tree between them (NCCL, Hopper and later).

Over two nodes each NIC carries half of what a ring would put on it.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, PlacedGroups, algorithms, joined
from trainsim.collectives.latency import nvls_ramp, nvls_tree_chain, tree_latency
from trainsim.collectives.nvls import nvls_edges
from trainsim.collectives.tree import between_domains_on_trees


def nvls_tree_edges(operation: str, placement: PlacedGroups) -> Edges:
    """To the switches and back within domains, up and down two trees between them."""
    return joined([nvls_edges(operation, placement), between_domains_on_trees(placement)])


def in_several_domains(placement: PlacedGroups) -> Bools:
    """A tree between domains whose switches can add, each with more than one rank of the group."""
    several = np.zeros(len(placement.members), np.int64)
    np.add.at(several, placement.group, placement.size > 1)
    return np.asarray((placement.domains > 1) & (several == placement.domains) & placement.machine.nvls)


algorithms.register("nvls_tree", "NVLSTree")(
    Algorithm(
        operations=("all_reduce",),
        edges=nvls_tree_edges,
        latency=tree_latency,
        ramp=nvls_ramp,
        chain=nvls_tree_chain,
        small_rate="tree_small_rate",
        fits=in_several_domains,
        needs="groups with two or more ranks in each of several NVLink domains whose switches can reduce",
    )
)
