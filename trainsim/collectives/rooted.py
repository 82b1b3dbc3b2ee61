"""Gather and scatter: grouped sends and receives between a root, the first rank of a group, and all others."""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Edges, PlacedGroups, algorithms
from trainsim.collectives.neighbour import message_latency, no_ramp


def rooted_edges(operation: str, placement: PlacedGroups) -> Edges:
    """All to the root, or the root to all: an equal part each, which the root's links carry together."""
    groups, ranks = placement.members.shape
    group = np.repeat(np.arange(groups), ranks - 1)
    root = np.repeat(placement.members[:, 0], ranks - 1)
    others = placement.members[:, 1:].ravel()
    share = np.full(len(group), 1.0 / max(ranks - 1, 1))
    return Edges(group, root, others, share) if operation == "scatter" else Edges(group, others, root, share)


algorithms.register("rooted")(
    Algorithm(operations=("gather", "scatter"), edges=rooted_edges, latency=message_latency, ramp=no_ramp)
)
