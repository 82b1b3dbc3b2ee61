"""
From traffic to a Pattern: how fast a group's bytes go at most, and what part of each link they take meanwhile.

A group goes as fast as its most loaded link lets it. Links that groups share are not split here: each group gets
the speed that it has alone, and the engine shares links between whoever is at work. A group with 2 of a node's 8
GPUs has the network rails of those two; where two GPUs have one NIC, it has that whole NIC until the other group
of that NIC comes along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trainsim.collectives import Algorithm, Edges, Floats, Ints, Machine, Placement, algorithms, factor, joined
from trainsim.collectives.latency import least_latency
from trainsim.collectives.placement import place
from trainsim.contracts.system import Pattern
from trainsim.errors import InvalidPlan
from trainsim.units import Quantity, parse_bytes


def pattern(
    machine: Machine,
    operation: str,
    members: Ints,
    *,
    algorithm: str = "auto",
    network_efficiency: float = 1.0,
    bandwidth: Floats | None = None,
) -> Pattern:
    """How *operation* moves bytes over the groups *members* [groups, ranks].

    *algorithm* is a name in ``algorithms`` or ``auto``. Links of the network give ``network_efficiency`` of their
    *bandwidth* (bytes/s of every link; None: the machine's own). Raises UnknownName and InvalidPlan.
    """
    placement = place(machine, members)
    volume = np.full(len(placement.members), factor(operation, placement.ranks))
    chosen = list(_choose(placement, operation, algorithm))
    edges = joined([_edges_of(placement, operation, name, groups) for name, groups in chosen])
    latency, ramps = np.zeros((2, len(volume)))
    for name, groups in chosen:
        wait = least_latency if algorithm == "auto" else algorithms[name].latency
        latency[groups] = wait(operation, placement)[groups]
        ramps[groups] = algorithms[name].ramp(operation, placement)[groups]
    rates = Rates(machine, network_efficiency, bandwidth)
    return _pattern(machine, edges, volume, rates, latency=latency, ramps=ramps)


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
    return _pattern(machine, edges, np.ones(len(src)) * apart, rates, latency=latency, ramps=np.zeros(len(src)))


def latency_only(machine: Machine, operation: str, members: Ints) -> Pattern:
    """An operation on a few bytes (a loss, a norm, a flag): it takes its latency, and no link."""
    placement = place(machine, members)
    factor(operation, placement.ranks)
    return replace(instant(len(placement.members)), latency=least_latency(operation, placement))


def instant(groups: int) -> Pattern:
    """What takes no time and no link, for *groups* groups."""
    zero, none = np.zeros(groups), np.zeros(0, np.int64)
    return Pattern(
        factor=zero,
        bandwidth=np.ones_like(zero),
        latency=zero,
        ramp=zero,
        use_group=none,
        use_resource=none,
        use_amount=np.zeros(0),
        use_hold=np.zeros(0, bool),
    )


def collective_time(
    cluster: Machine, operation: str, ranks: Iterable[int], nbytes: Quantity, algorithm: str = "auto"
) -> float:
    """Seconds of one collective over *ranks*, alone on the network; *nbytes* is the whole buffer, as a number or as
    people write it: ``"1MiB"``.

    The buffer is NCCL's: what every rank holds after an all_gather or before a reduce_scatter.
    """
    nbytes = parse_bytes(nbytes) if isinstance(nbytes, str) else nbytes
    if not nbytes >= 0:
        raise InvalidPlan(f"{operation} of {nbytes!r} bytes: give 0 bytes or more")
    members = np.fromiter(ranks, np.int64).reshape(1, -1)
    return pattern(cluster, operation, members, algorithm=algorithm).seconds(0, nbytes)[0]


class Rates(NamedTuple):
    """Bytes/s reached of links: *efficiency* counts on those of the network, so does *gain*, up to the line rate."""

    machine: Machine
    efficiency: float
    bandwidth: Floats | None = None
    gain: float = 1.0

    def of(self, links: Ints) -> Floats:
        """The rates of some links; those of the whole machine would be many."""
        own = np.asarray(self.machine.bandwidth if self.bandwidth is None else self.bandwidth)[links]
        line = np.maximum(own, np.asarray(self.machine.line_rate)[links])
        network = np.minimum(own * self.gain, line) * self.efficiency
        return np.where(np.asarray(self.machine.is_network)[links], network, own)


def loads(machine: Machine, edges: Edges) -> tuple[Ints, Ints, Floats]:
    """(Group, link, bytes on the link per byte of ``factor * S``), sorted by group and link, each pair once."""
    pair, link = machine.routes(edges.src, edges.dst)
    links = len(machine.bandwidth)
    key, place_of = np.unique(edges.group[pair] * links + link, return_inverse=True)
    load: Floats = np.bincount(place_of.ravel(), weights=edges.share[pair], minlength=len(key)).astype(np.float64)
    return key // links, key % links, load


def _choose(placement: Placement, operation: str, algorithm: str) -> Iterator[tuple[str, Ints]]:
    """(Name of an algorithm, the groups that use it)."""
    everyone = np.arange(len(placement.members))
    if algorithm != "auto":
        name = algorithms.canonical(algorithm)
        _refuse(placement, operation, name, algorithms[name])
        yield name, everyone
    elif operation == "all_to_all":
        yield "direct", everyone
    else:
        fits = algorithms["nvls"].fits
        switched = np.zeros(len(everyone), bool)
        if (
            operation == "all_reduce"
            and placement.ranks >= placement.machine.constants["nvls_minimum_ranks"]
            and fits is not None
        ):
            switched = fits(placement)
        yield from ((name, everyone[of]) for name, of in (("nvls", switched), ("ring", ~switched)) if of.any())


def _refuse(placement: Placement, operation: str, name: str, algorithm: Algorithm) -> None:
    if operation not in algorithm.operations:
        able = [other for other in algorithms if operation in algorithms[other].operations]
        raise InvalidPlan(f"algorithm {name} does not do {operation}; auto or {' or '.join(able)} would")
    if algorithm.fits is not None and not algorithm.fits(placement).all():
        group = placement.members[~algorithm.fits(placement)][0]
        raise InvalidPlan(
            f"algorithm {name} needs {algorithm.needs}; the group of ranks {group[0]} to {group[-1]} "
            "is not like that: auto or ring would work"
        )


def _edges_of(placement: Placement, operation: str, name: str, groups: Ints) -> Edges:
    if len(groups) == len(placement.members):
        return algorithms[name].edges(operation, placement)
    part = place(placement.machine, placement.members[groups])
    edges = algorithms[name].edges(operation, part)
    return edges._replace(group=groups[edges.group])


def _pattern(
    machine: Machine, edges: Edges, volume: Floats, rates: Rates, *, latency: Floats, ramps: Floats
) -> Pattern:
    group, link, load = loads(machine, edges)
    rate = rates.of(link)
    fastest = np.ones(len(volume))
    if len(group):
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        fastest[group[begins]] = np.minimum.reduceat(rate / load, begins)
    return Pattern(
        factor=volume,
        bandwidth=fastest,
        latency=latency,
        ramp=ramps,
        use_group=group,
        use_resource=link,
        use_amount=load * fastest[group] / rate,
        use_hold=np.zeros(len(group), bool),
    )
