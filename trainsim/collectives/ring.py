"""
Ring: every rank passes on what it got from the one before.

Over several domains NCCL runs one channel per NIC. A channel enters and leaves a domain on the rail of one rank and
goes through all its ranks in between, so that inside a domain every rank sends everything to its neighbour, and over
the network every rank's rail carries one part in ``local`` of it.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import OPERATIONS, Algorithm, Edges, Floats, Ints, Placement, algorithms
from trainsim.collectives.latency import ramp, ring_latency


def ring_edges(operation: str, placement: Placement) -> Edges:
    """Closed rings inside the domains of a group, and a rail per rank between them."""
    inside, between = in_domains(placement), between_domains(placement)
    return Edges(*(np.concatenate(columns) for columns in zip(inside, between, strict=True)))


def in_domains(placement: Placement) -> Edges:
    """Each rank to the next one of its group in the domain, the last to the first; alone, to nobody."""
    rings = [_follow(placement, ring) for ring in range(1)]
    return Edges(*(np.concatenate(columns) for columns in zip(*rings, strict=True)))


def _follow(placement: Placement, ring: int) -> Edges:
    flat = placement.members.ravel()
    after = np.arange(1, len(flat) + 1)
    after[placement.first + placement.size - 1] = placement.first
    sends = np.repeat(placement.size > 1, placement.size)
    group = np.repeat(placement.group, placement.size)[sends]
    return Edges(group, flat[sends], flat[after][sends], np.ones(len(group)))


def between_domains(placement: Placement) -> Edges:
    """Rail c of each domain to rail c of the group's next domain, the last to the first; one part in ``local`` each.

    A domain with fewer ranks than ``local`` carries several channels on one of them.
    """
    segments = np.flatnonzero(placement.domains[placement.group] > 1)
    after = next_in_group(placement)
    return rails(placement, segments, after[segments])


def next_in_group(placement: Placement) -> Ints:
    """For each segment the group's next one, the first after the last."""
    after = np.arange(1, len(placement.group) + 1)
    begins = np.flatnonzero(np.diff(placement.group, prepend=-1))
    ends = np.append(begins[1:], len(placement.group)) - 1
    after[ends] = begins
    return after


def rails(placement: Placement, source: Ints, target: Ints, share: Floats | float = 1.0) -> Edges:
    """Edges from segments *source* to segments *target*: one per channel, with *share* split over the channels."""
    flat = placement.members.ravel()
    channels = placement.local[placement.group[source]]
    source, target = np.repeat(source, channels), np.repeat(target, channels)
    begins = np.cumsum(channels) - channels
    channel = np.arange(len(source)) - np.repeat(begins, channels)
    per_channel = np.repeat(np.broadcast_to(share, channels.shape) / channels, channels)
    return Edges(
        placement.group[source],
        flat[placement.first[source] + channel % placement.size[source]],
        flat[placement.first[target] + channel % placement.size[target]],
        per_channel,
    )


algorithms.register("ring")(
    Algorithm(
        operations=tuple(o for o in OPERATIONS if o != "all_to_all"), edges=ring_edges, latency=ring_latency, ramp=ramp
    )
)
