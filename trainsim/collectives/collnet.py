"""
SHARP, as NCCL's CollNet uses it: switches of the network add up, so that a NIC sends its part once instead of twice.

Inside a domain its ranks add up directly, or its switch does where it can; each rank's NIC sends the part of the domain
that is its own to the network and gets the sum back.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, Floats, PlacedGroups, algorithms, joined
from trainsim.collectives.latency import nvls_ramp, scaled, tree_ramp
from trainsim.collectives.nvls import nvls_edges
from trainsim.collectives.nvls_tree import in_several_domains
from trainsim.collectives.ring import in_domains, next_in_group, rails


def collnet_edges(operation: str, placement: PlacedGroups) -> Edges:
    """What a ring has inside domains, or multicast, and half of its bytes between them, over ``collnet_rate``."""
    half = placement.ranks / max(placement.ranks - 1, 1) / 2.0 / placement.machine.constants["collnet_rate"]
    segments = np.arange(len(placement.group))
    inside = nvls_edges(operation, placement) if in_several_domains(placement).all() else in_domains(placement)
    return joined([inside, rails(placement, segments, next_in_group(placement), half)])


def collnet_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0: chains within domains, and one way through the network's switches whatever the number of nodes."""
    constants = placement.machine.constants
    others = placement.local - 1
    inside = np.minimum(others, 1) * constants["ring_step"] + others * constants["collnet_peer"]
    return scaled(placement, constants["tree_base"] + 2.0 * inside + constants["collnet_network"])


def collnet_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau: that of what the ranks do inside their domains."""
    fast = in_several_domains(placement)
    return np.where(fast, nvls_ramp(operation, placement), tree_ramp(operation, placement))


def over_adding_switches(placement: PlacedGroups) -> Bools:
    """Groups over several domains of a network whose switches add."""
    return np.asarray((placement.domains > 1) & placement.machine.sharp)


algorithms.register("collnet", "CollNet", "CollNetDirect", "CollNetChain", "sharp", "SHARP")(
    Algorithm(
        operations=("all_reduce",),
        edges=collnet_edges,
        latency=collnet_latency,
        ramp=collnet_ramp,
        fits=over_adding_switches,
        needs="groups over several domains of a network whose switches add (fabric.sharp: true)",
    )
)
