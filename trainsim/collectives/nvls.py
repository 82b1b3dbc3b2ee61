"""
NVLS: the switch adds up and copies, so that a rank sends its buffer once instead of twice (NCCL >= 2.17, Hopper on).

In an all-reduce of S bytes over n ranks each sends S bytes for the switch to add up, and a copy of its part of the sum,
S/n, for the switch to spread; it receives as much.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, Floats, PlacedGroups, algorithms, factor
from trainsim.collectives.latency import least_latency, nvls_ramp
from trainsim.collectives.ring import in_domains


def nvls_edges(operation: str, placement: PlacedGroups) -> Edges:
    """Every rank to the switch and back: (n + 1) / n of the buffer, at the rate that multicast reaches."""
    machine, constants = placement.machine, placement.machine.constants
    edges = in_domains(placement, (1.0 + 1.0 / placement.size) / factor(operation, placement.ranks))
    _, link = machine.routes(edges.src[:1], edges.dst[:1])
    reached = (machine.bandwidth[link] / machine.line_rate[link]).max(initial=0.0)
    return edges._replace(share=edges.share * (reached / multicast_rate(constants, placement)[edges.group]))


def multicast_rate(constants: Mapping[str, float], placement: PlacedGroups) -> Floats:
    """The part of the line rate of its NVLinks at which a rank sends what the switch adds up or copies."""
    usual = constants["ramp_gpus"]
    of_the_line = constants["nvls_rate"] * (usual + 1.0) / (2.0 * (usual - 1.0))
    beyond = np.maximum(placement.local / usual, 1.0)
    return np.asarray(of_the_line * beyond ** -constants["nvls_rate_power"])


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
