"""
Shift: every rank sends its buffer to the next one of its group and receives that of the one before.

The last one sends to the first. These are messages (NCCL's grouped send and receive): they have the latency of one, and
no pipeline of chunks to fill.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Algorithm, Edges, Floats, PlacedGroups, algorithms


def neighbour_edges(operation: str, placement: PlacedGroups) -> Edges:
    """Each rank to the next one, in the order of their numbers."""
    groups, ranks = placement.members.shape
    if ranks == 1:
        none = np.zeros(0, np.int64)
        return Edges(none, none, none, np.zeros(0))
    group = np.repeat(np.arange(groups), ranks)
    after = np.roll(placement.members, -1, axis=1)
    return Edges(group, placement.members.ravel(), after.ravel(), np.ones(groups * ranks))


def message_latency(operation: str, placement: PlacedGroups) -> Floats:
    """That of a message; where one of them crosses the network, all wait for it."""
    constants = placement.machine.constants
    if placement.ranks == 1:
        return np.zeros(len(placement.members))
    far = placement.domains > 1
    return np.where(far, constants["message_network_latency"], constants["message_latency"])


def no_ramp(operation: str, placement: PlacedGroups) -> Floats:
    """A message is at full speed at once."""
    return np.zeros(len(placement.members))


algorithms.register("neighbour", "send_recv")(
    Algorithm(operations=("shift",), edges=neighbour_edges, latency=message_latency, ramp=no_ramp)
)
