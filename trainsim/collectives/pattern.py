"""
Patterns of what programs ask for: collectives, messages, and operations on a few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from trainsim.collectives import Edges, Floats, Ints, Machine, PlacedGroups, algorithms, factor
from trainsim.collectives.choice import quickest, refuse
from trainsim.collectives.latency import least_latency
from trainsim.collectives.place import place
from trainsim.collectives.protocols import split_protocol, with_protocol
from trainsim.collectives.traffic import Rates, Timing, carried, from_edges, instant
from trainsim.contracts.system import Pattern
from trainsim.errors import InvalidPlan
from trainsim.units import Quantity, parse_bytes


def pattern(
    machine: Machine,
    operation: str,
    members: Ints | PlacedGroups,
    *,
    algorithm: str = "auto",
    network_efficiency: float = 1.0,
    bandwidth: Floats | None = None,
) -> Pattern:
    """How *operation* moves bytes over the groups *members* [groups, ranks], which may be placed already.

    *algorithm* is a name in ``algorithms``, or ``auto``: the quickest one for large buffers, with the latency of the
    quickest one for small buffers. A protocol may follow, as in ``ring/ll128`` or ``auto/simple``. Links of the network
    give ``network_efficiency`` of their *bandwidth* (bytes/s of every link; None: the machine's own). Raises
    UnknownName and InvalidPlan.
    """
    placement = members if isinstance(members, PlacedGroups) else place(machine, members)
    rates = Rates(machine, network_efficiency, None if bandwidth is machine.bandwidth else bandwidth)
    factor(operation, placement.ranks)
    name, protocol = split_protocol(algorithm)
    if name == "auto":
        return quickest(placement, operation, rates, protocol)
    refuse(placement, operation, name)
    if protocol:
        return with_protocol(placement, operation, name, protocol, rates)
    return carried(placement, operation, algorithms[name], rates)


def message_pattern(
    machine: Machine, src: Ints, dst: Ints, *, efficiency: float = 1.0, bandwidth: Floats | None = None
) -> Pattern:
    """A message from ``src[k]`` to ``dst[k]`` for every k; *efficiency* is the share of a network link it reaches.

    ``message_network_gain`` is the rate of a message over that of collectives on a network link, up to its line
    rate. From a rank to itself takes no time.
    """
    src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
    apart = src != dst
    far = np.asarray(machine.domain_of(src)) != np.asarray(machine.domain_of(dst))
    constants = machine.constants
    latency = np.where(far, constants["message_network_latency"], constants["message_latency"]) * apart
    edges = Edges(np.arange(len(src)), src, dst, np.ones(len(src)))
    rates = Rates(machine, efficiency, bandwidth, constants["message_network_gain"])
    none = np.zeros(len(src))
    return from_edges(rates, edges, np.ones(len(src)) * apart, Timing(latency, none, none, none))


def latency_only(machine: Machine, operation: str, members: Ints) -> Pattern:
    """An operation on a few bytes (a loss, a norm, a flag): it takes its latency, and no link."""
    placement = place(machine, members)
    factor(operation, placement.ranks)
    return replace(instant(len(placement.members)), latency=least_latency(operation, placement))


def collective_time(
    cluster: Machine,
    operation: str,
    ranks: Iterable[int] | Iterable[Iterable[int]],
    nbytes: Quantity,
    algorithm: str = "auto",
) -> float:
    """Seconds of one collective over *ranks*, alone on the network; *nbytes* is the whole buffer, as a number or as
    people write it: ``"1MiB"``.

    Several groups, each with its ranks, do it at once and share the links that they have in common: the time is that of
    the slowest. A protocol may follow the algorithm, as in ``ring/ll128``. The buffer is NCCL's: what every rank holds
    after an all_gather or before a reduce_scatter.

    >>> from trainsim.hardware.cluster import load_topology
    >>> cluster = load_topology("pcie_box", nodes=2)  # two GPUs share a NIC
    >>> one = collective_time(cluster, "all_reduce", [0, 8], "1GiB")
    >>> both = collective_time(cluster, "all_reduce", [[0, 8], [1, 9]], "1GiB")
    >>> round(both / one, 1)
    1.9
    """
    if not hasattr(cluster, "domain_of"):
        raise InvalidPlan(f"cluster = {cluster!r}: give a machine, such as ts.topology('dgx_h100', nodes=4)")
    nbytes = parse_bytes(nbytes) if isinstance(nbytes, str) else nbytes
    if not isinstance(nbytes, Real) or not 0 <= nbytes < np.inf:
        raise InvalidPlan(f"{operation} of {nbytes!r} bytes: give 0 bytes or more")
    if not isinstance(ranks, Iterable):
        raise InvalidPlan(f"ranks = {ranks!r}: give each rank of the group, such as range(8)")
    made = pattern(cluster, operation, _groups(ranks), algorithm=algorithm)
    alone = [made.seconds(group, nbytes) for group in range(len(made.factor))]
    asked = np.bincount(made.use_resource, made.use_amount)
    crowd = np.ones(len(alone))
    np.maximum.at(crowd, made.use_group, asked[made.use_resource] if len(asked) else 1.0)
    return max(max(total, float(many) * total * moving) for (total, moving), many in zip(alone, crowd, strict=True))


def _groups(ranks: Iterable[Any]) -> Ints:
    """[groups, ranks] of one group or of several of one size."""
    given = list(ranks)
    several = bool(given) and all(isinstance(group, Iterable) and not isinstance(group, str) for group in given)
    groups = [list(group) for group in given] if several else [given]
    if wrong := [rank for group in groups for rank in group if not isinstance(rank, Integral)]:
        raise InvalidPlan(f"rank {wrong[0]!r}: a rank is a whole number, 0 or more")
    if len({len(group) for group in groups}) > 1:
        sizes = sorted({len(group) for group in groups})
        raise InvalidPlan(f"groups of {sizes[0]} and of {sizes[-1]} ranks: those that run at once are of one size")
    if len({rank for group in groups for rank in group}) < sum(len(set(group)) for group in groups):
        raise InvalidPlan("a rank is in two of the groups: those that run at once have no rank in common")
    return np.array(groups, np.int64)
