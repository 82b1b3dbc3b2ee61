"""
PAT: all-gathers and reduce-scatters of one GPU per domain along trees, in steps as many as the logarithm of the ranks
(NCCL >= 2.23).

Every rank sends and gets as much as on a ring, at a part of its rate; small buffers need not go all around.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, PlacedGroups, algorithms
from trainsim.collectives.latency import GATHERS, pat_latency, ring_ramp
from trainsim.collectives.ring import between_domains


def pat_edges(operation: str, placement: PlacedGroups) -> Edges:
    """What a ring carries, over ``pat_rate``: distances of 1, 2, 4, ... cross the same NICs."""
    edges = between_domains(placement)
    return edges._replace(share=edges.share / placement.machine.constants["pat_rate"])


def one_per_domain(placement: PlacedGroups) -> Bools:
    """Groups of one GPU in each of several domains."""
    return np.asarray((placement.domains == placement.ranks) & (placement.ranks > 1))


algorithms.register("pat", "PAT")(
    Algorithm(
        operations=GATHERS,
        edges=pat_edges,
        latency=pat_latency,
        ramp=ring_ramp,
        fits=one_per_domain,
        needs="one GPU in each of several nodes",
    )
)
