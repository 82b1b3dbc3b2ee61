"""Direct exchange: every rank sends its part to every other rank at once, as NCCL's all-to-all does."""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Edges, Placement, algorithms
from trainsim.collectives.latency import least_latency, ramp


def direct_edges(operation: str, placement: Placement) -> Edges:
    """All ordered pairs of a group, an equal part each; on the network only the pairs that cross it count."""
    groups, ranks = placement.members.shape
    src, dst = np.nonzero(~np.eye(ranks, dtype=bool))
    share = np.full(groups * len(src), 1.0 / max(ranks - 1, 1))
    return Edges(
        np.repeat(np.arange(groups), len(src)),
        placement.members[:, src].ravel(),
        placement.members[:, dst].ravel(),
        share,
    )


algorithms.register("direct", "all_to_all", "pairwise")(
    Algorithm(operations=("all_to_all",), edges=direct_edges, latency=least_latency, ramp=ramp)
)
