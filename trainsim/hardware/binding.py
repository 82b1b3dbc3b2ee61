"""
Links that can slow somebody down: the others stand in series with a narrower link, or carry all that arrives.

A link never binds if every way over it also crosses one that is no wider, or if it is the uplink of a switch that can
carry all that its NICs send at line rate. Leaving such links out changes no rate: in max-min sharing a link that is
always at most as full as another one fixes nothing that the other does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainsim.hardware.fabric import Fabric
from trainsim.hardware.node import Link
from trainsim.hardware.node_ways import NodeWays
from trainsim.hardware.routing import NodeRoutes

Bools = npt.NDArray[np.bool_]
ROUNDING = 1e-9  # of a bandwidth: sums of equal link rates may differ from the whole by this


def binding_links(links: Sequence[Link], ways: NodeWays, fabric: Fabric) -> Bools:
    """For every directed link of the nodes with these *ways* and their *fabric*: whether it can be the tightest of a
    way. A single uplink can: hashes may put more on it than on others."""
    local = np.stack([~_in_series(links, routed) for routed in ways.kinds])[ways.kind]
    whole = np.repeat(
        [not _carries_all(fabric, fabric.oversubscription), not _carries_all(fabric, fabric.pod_oversubscription)],
        [fabric.uplinked, fabric.pods],
    ).astype(np.bool_)
    above = np.repeat(whole | fabric.hashes, 2 * fabric.links_per_switch)
    if fabric.failed_uplinks:
        above |= np.repeat(fabric.working < fabric.ports, 2 * fabric.links_per_switch)
    return np.concatenate([local.ravel(), above.astype(np.bool_)])


def _in_series(links: Sequence[Link], routed: NodeRoutes) -> Bools:
    """Links all of whose ways also cross one link that is no wider; of equals the last one counts."""
    ways: list[set[int]] = [set() for _ in links]
    for row in range(len(routed.start) - 1):
        for link in routed.row(row):
            ways[link].add(row)
    out = np.zeros(len(links), np.bool_)
    for a, routes in enumerate(ways):
        others = set.intersection(*(set(routed.row(row)) for row in routes)) - {a} if routes else set()
        out[a] = any(_no_wider(links, a, b, routes == ways[b]) for b in others)
    return out


def _no_wider(links: Sequence[Link], a: int, b: int, same_ways: bool) -> bool:
    """Whether b is never wider than a, even at its line rate; equals that carry the same ways: only one goes."""
    if links[a].family == "network":
        return False
    wide, narrow = links[a].bandwidth, links[b].line_rate if links[b].family == "network" else links[b].bandwidth
    return wide > narrow or (wide == narrow and (not same_ways or a < b))


def _carries_all(fabric: Fabric, oversubscription: float) -> bool:
    return oversubscription <= 1.0 + ROUNDING and fabric.uplink_reachable >= fabric.reachable * (1 - ROUNDING)
