"""
Ring: every rank passes on what it got from the one before.

Over several domains NCCL runs one channel per NIC. A channel enters and leaves a domain on the rail of one rank and
goes through all its ranks in between, so that inside a domain every rank sends everything to its neighbour, and over
the network every rank's rail carries one part in ``local`` of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from trainsim.collectives import Algorithm, Edges, Floats, Ints, PlacedGroups, algorithms, joined
from trainsim.collectives.latency import ring_chain, ring_latency, ring_ramp, ring_steps

_NONE = np.zeros(0, np.int64)
_NOBODY = Edges(_NONE, _NONE, _NONE, np.zeros(0))


def ring_edges(operation: str, placement: PlacedGroups) -> Edges:
    """Closed rings inside the domains of a group, and a rail per rank between them."""
    return joined([in_domains(placement), between_domains(placement)])


def in_domains(placement: PlacedGroups, share: Floats | float = 1.0) -> Edges:
    """Each rank to the next one of its group in the domain, the last to the first; alone, to nobody.

    *share* is that of each segment. Without a switch, along the machine's own rings, each with its part of it.
    """
    shares = np.broadcast_to(np.asarray(share, np.float64), placement.size.shape)
    parts = [
        _around(placement, segments, order, shares[segments] * part)
        for size in np.unique(placement.size[placement.size > 1])
        for segments in _alike(placement, np.flatnonzero(placement.size == size))
        for order, part in _orders(placement, segments[0])
    ]
    return joined([_NOBODY, *parts])


def _around(placement: PlacedGroups, segments: Ints, order: Ints, share: Floats) -> Edges:
    flat = placement.members.ravel()
    src = flat[placement.first[segments][:, None] + order]
    group = np.repeat(placement.group[segments], len(order))
    return Edges(group, src.ravel(), np.roll(src, -1, axis=1).ravel(), np.repeat(share, len(order)))


def _orders(placement: PlacedGroups, segment: Ints) -> Iterator[tuple[Ints, float]]:
    """(Places within the segment in ring order, part of the bytes) of each ring."""
    first = placement.first[segment]
    members = placement.members.ravel()[first : first + placement.size[segment]]
    for ring, share in placement.machine.rings(members):
        yield np.searchsorted(members, ring), share


def _alike(placement: PlacedGroups, segments: Ints) -> Iterator[Ints]:
    """Segments of one size, by which GPUs of a domain they have."""
    first, size = placement.first[segments], placement.size[segments[0]]
    places = placement.members.ravel()[first[:, None] + np.arange(size)] % placement.machine.gpus_per_node
    if (places == places[0]).all():
        yield segments
        return
    _, kind = np.unique(places, axis=0, return_inverse=True)
    for k in range(kind.max() + 1):
        yield segments[kind.ravel() == k]


def between_domains(placement: PlacedGroups) -> Edges:
    """Rail c of each domain to rail c of the group's next domain, the last to the first; one part in ``local`` each.

    A domain with fewer ranks than ``local`` carries several channels on one of them.
    """
    segments = np.flatnonzero(placement.domains[placement.group] > 1)
    after = next_in_group(placement)
    return rails(placement, segments, after[segments])


def next_in_group(placement: PlacedGroups) -> Ints:
    """For each segment the group's next one, the first after the last."""
    after = np.arange(1, len(placement.group) + 1)
    begins = np.flatnonzero(np.diff(placement.group, prepend=-1))
    ends = np.append(begins[1:], len(placement.group)) - 1
    after[ends] = begins
    return after


def rails(placement: PlacedGroups, source: Ints, target: Ints, share: Floats | float = 1.0, most: float = inf) -> Edges:
    """Edges from segments *source* to segments *target*: one per channel, *most* at most, which split *share*."""
    flat = placement.members.ravel()
    channels = np.minimum(placement.local[placement.group[source]], most).astype(np.int64)
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


algorithms.register("ring", "Ring")(
    Algorithm(
        operations=("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"),
        edges=ring_edges,
        latency=ring_latency,
        ramp=ring_ramp,
        chain=ring_chain,
        steps=ring_steps,
    )
)
