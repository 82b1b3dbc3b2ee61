"""Direct exchange: every rank sends its part to every other rank at once, as NCCL's all-to-all does."""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Edges, PlacedGroups, algorithms
from trainsim.collectives.latency import least_latency, tree_ramp

MOST_PAIRS = 1 << 18
"""Pairs that are laid out one by one; of more, every rank sends to so many others at evenly spread distances."""


def direct_edges(operation: str, placement: PlacedGroups) -> Edges:
    """All ordered pairs of a group, an equal part each; on the network only the pairs that cross it count.

    Of very large groups a sample of the pairs stands for all: each rank sends and receives as much as ever.
    """
    groups, ranks = placement.members.shape
    shifts = np.arange(1, ranks)
    most = max(1, MOST_PAIRS // (groups * ranks))
    if len(shifts) > most:
        shifts = np.unique(np.linspace(1, ranks - 1, most).round().astype(np.int64))
    src = np.repeat(np.arange(ranks), len(shifts))
    dst = (src + np.tile(shifts, ranks)) % ranks
    share = np.full(groups * len(src), 1.0 / max(len(shifts), 1))
    return Edges(
        np.repeat(np.arange(groups), len(src)),
        placement.members[:, src].ravel(),
        placement.members[:, dst].ravel(),
        share,
    )


algorithms.register("direct", "all_to_all", "pairwise")(
    Algorithm(operations=("all_to_all",), edges=direct_edges, latency=least_latency, ramp=tree_ramp)
)
