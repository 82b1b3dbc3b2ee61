"""
All pairs: every rank sends each other one its part, and the sums back, at once: two steps, on all links of a full mesh.

RCCL's kernels for fully joined GPUs do so where a ring would take 2 (n - 1) steps for few bytes.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Bools, Floats, Ints, PlacedGroups, algorithms
from trainsim.collectives.direct import direct_edges
from trainsim.collectives.latency import scaled


def all_pairs_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 of one or two steps, however many ranks there are. Seconds per group."""
    constants = placement.machine.constants
    rounds = 2 if operation == "all_reduce" else 1
    return scaled(placement, np.full(len(placement.members), constants["ring_base"] + rounds * constants["ring_step"]))


def all_pairs_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """tau of a ring: chunks are as large. Seconds per group."""
    return np.full(len(placement.members), placement.machine.constants["ramp"])


def fully_joined(placement: PlacedGroups) -> Bools:
    """Groups of three or more ranks in one domain, each with a link of its own to every other one."""
    out = np.zeros(len(placement.members), bool)
    near = np.flatnonzero((placement.domains == 1) & (placement.ranks > 2))
    if not len(near) or not _linked(placement, placement.members[near[0], :2]):
        return out
    places, alike = np.unique(placement.members[near] % placement.machine.gpus_per_node, axis=0, return_inverse=True)
    joined = np.array([_linked(placement, near_members) for near_members in places])
    out[near] = joined[alike.ravel()]
    return out


def _linked(placement: PlacedGroups, members: Ints) -> bool:
    """Whether every two of *members* have one link between them."""
    a, b = np.meshgrid(members, members)
    apart = a != b
    pair, _ = placement.machine.routes(a[apart], b[apart])
    return len(pair) == int(apart.sum())


algorithms.register("all_pairs", "direct_all_reduce")(
    Algorithm(
        operations=("all_reduce", "all_gather", "reduce_scatter"),
        edges=direct_edges,
        latency=all_pairs_latency,
        ramp=all_pairs_ramp,
        fits=fully_joined,
        needs="three or more ranks of one domain, each linked to every other one",
    )
)
