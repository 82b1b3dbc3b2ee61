"""
All-to-all by rails (NCCL's PXN): a rank hands what is for another node to the GPU of its own node that has the same
place as the receiver, over NVLink, and that one sends it along its own rail.

So nothing crosses from rail to rail over spines, and messages are fewer and larger; NVLinks carry most bytes twice.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, Floats, PlacedGroups, algorithms, joined
from trainsim.collectives.latency import least_latency, tree_ramp


def by_rail_edges(operation: str, placement: PlacedGroups) -> Edges:
    """Within a domain every rank to every other: its part, and what goes on from there; along rails the rest."""
    groups, ranks = placement.members.shape
    local = int(placement.local[0])
    nodes = ranks // local
    members = placement.members.reshape(groups, nodes, local)
    one = 1.0 / (ranks - 1)
    inside = _all_pairs(members, one * nodes)
    along = _all_pairs(members.transpose(0, 2, 1), one * local)
    return joined([inside, along])


def _all_pairs(members: np.ndarray[tuple[int, int, int], np.dtype[np.int64]], share: float) -> Edges:
    """From everyone to everyone else along the last axis of *members* [groups, circles, size]."""
    groups, circles, size = members.shape
    src, dst = np.nonzero(~np.eye(size, dtype=bool))
    group = np.repeat(np.arange(groups), circles * len(src))
    pairs = len(group)
    return Edges(group, members[:, :, src].ravel(), members[:, :, dst].ravel(), np.full(pairs, share))


def by_rail_latency(operation: str, placement: PlacedGroups) -> Floats:
    """T0 of the messages, and of one more step within the domain."""
    constants = placement.machine.constants
    return least_latency(operation, placement) + constants["latency_scale"] * constants["ring_step"]


def alike_in_several_domains(placement: PlacedGroups) -> Bools:
    """Groups with the same places in each of several domains, two or more."""
    groups, ranks = placement.members.shape
    local, domains = placement.local, placement.domains
    full = (local > 1) & (domains > 1) & (local * domains == ranks)
    if not full.all() or len(np.unique(local)) > 1:
        return np.zeros(groups, bool)
    places = (placement.members % placement.machine.gpus_per_node).reshape(groups, -1, int(local[0]))
    return np.asarray((places == places[:, :1]).all(axis=(1, 2)))


algorithms.register("by_rail", "pxn", "PXN", "hierarchical")(
    Algorithm(
        operations=("all_to_all",),
        edges=by_rail_edges,
        latency=by_rail_latency,
        ramp=tree_ramp,
        fits=alike_in_several_domains,
        needs="the same GPUs in each of several nodes, two or more",
    )
)
