"""
NVLS: the switch adds up and copies, so that a rank sends its buffer once instead of twice (NCCL >= 2.17, Hopper on).
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, PlacedGroups, algorithms
from trainsim.collectives.latency import least_latency, nvls_ramp
from trainsim.collectives.ring import in_domains


def nvls_edges(operation: str, placement: PlacedGroups) -> Edges:
    """Every rank to the switch and back: as in a ring, but a part of the bytes.

    ``nvls_rate`` is the measured bus bandwidth over the line rate of the links: it says how large a part.
    """
    machine, edges = placement.machine, in_domains(placement)
    _, link = machine.routes(edges.src[:1], edges.dst[:1])
    reached = (machine.bandwidth[link] / machine.line_rate[link]).max(initial=0.0)
    return edges._replace(share=edges.share * (reached / machine.constants["nvls_rate"]))


def in_one_domain(placement: PlacedGroups) -> Bools:
    """NVLS needs a switch that can add, and all ranks on it."""
    return np.asarray((placement.domains == 1) & (placement.ranks > 1) & placement.machine.nvls)


def enough_ranks(operation: str, placement: PlacedGroups) -> Bools:
    """NCCL leaves small groups to the ring."""
    enough = placement.ranks >= placement.machine.constants["nvls_minimum_ranks"]
    return np.full(len(placement.members), enough)


algorithms.register("nvls", "NVLS")(
    Algorithm(
        operations=("all_reduce",),
        edges=nvls_edges,
        latency=least_latency,  # small messages do not go through the switch's adders
        ramp=nvls_ramp,
        fits=in_one_domain,
        automatic=enough_ranks,
        needs="all ranks of a group in one NVLink domain whose switch can reduce",
    )
)
