"""
From traffic to a Pattern: how fast a group's bytes go at most, and what part of each link they take meanwhile.

A group goes as fast as its most loaded link lets it. Links that groups share are not split here: each group gets
the speed that it has alone, and the engine shares links between whoever is at work. A group with 2 of a node's 8
GPUs has the network rails of those two; where two GPUs have one NIC, it has that whole NIC until the other group
of that NIC comes along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trainsim.collectives import Algorithm, Bools, Edges, Floats, Ints, Machine, PlacedGroups, factor
from trainsim.contracts.system import Pattern


def carried(placement: PlacedGroups, operation: str, algorithm: Algorithm, rates: Rates) -> Pattern:
    """How *algorithm* carries out *operation* over all groups."""
    groups = len(placement.members)
    timing = Timing(
        algorithm.latency(operation, placement),
        algorithm.ramp(operation, placement),
        algorithm.chain(operation, placement) if algorithm.chain else np.zeros(groups),
        np.full(groups, placement.machine.constants["chunk_bytes"] * placement.ranks),
    )
    volume = np.full(groups, factor(operation, placement.ranks))
    limit = np.where(placement.domains > 1, placement.machine.constants["group_rate"], np.inf)
    edges = algorithm.edges(operation, placement)
    made = from_edges(rates, edges, volume, timing, limit=limit, known=placement.known)
    return switching(made, placement.machine.constants[algorithm.small_rate]) if algorithm.small_rate else made


def switching(pattern: Pattern, small_rate: float) -> Pattern:
    """*pattern* with a protocol for small buffers that has no chain, at *small_rate* of the speed: what it is slower by
    is as much as the chain where it gives way to the other."""
    apart = pattern.chain > 0.0
    slower = pattern.factor * (1.0 / small_rate - 1.0)
    until = pattern.chain * pattern.bandwidth / np.where(slower > 0.0, slower, 1.0)
    return replace(pattern, chain_bytes=np.where(apart & (slower > 0.0), until, pattern.chain_bytes))


class Timing(NamedTuple):
    """What a group waits for beside its bytes, as the columns of a pattern: seconds, and bytes for the last."""

    latency: Floats
    ramp: Floats
    chain: Floats
    chain_bytes: Floats


class _TakenLinks(NamedTuple):
    """What some traffic takes: the rate of each group, and the columns of a pattern."""

    fastest: Floats
    group: Ints
    link: Ints
    amount: Floats
    hold: Bools


def from_edges(
    rates: Rates,
    edges: Edges,
    volume: Floats,
    timing: Timing,
    *,
    limit: Floats | None = None,
    known: list[tuple[Rates, Edges, _TakenLinks]] | None = None,
) -> Pattern:
    """The pattern of some traffic: shares of *edges* are parts of ``volume``, bytes per byte of the buffer.

    *limit* is the most that each group sends, bytes/s, whatever its links could. Equal traffic is looked up in *known*
    (of one placement, whose limits are the same), and added there: gathers and reductions often take the same ways.
    """
    known = [] if known is None else known
    uses = next((uses for r, e, uses in known if r.same(rates) and all(map(np.array_equal, e, edges))), None)
    if uses is None:
        uses = _uses(rates, edges, len(volume), limit)
        known.append((rates, edges, uses))
    return Pattern(
        factor=volume,
        bandwidth=uses.fastest,
        **timing._asdict(),
        use_group=uses.group,
        use_resource=uses.link,
        use_amount=uses.amount,
        use_hold=uses.hold,
    )


def _uses(rates: Rates, edges: Edges, groups: int, limit: Floats | None) -> _TakenLinks:
    group, link, load = loads(rates.machine, edges)
    rate = rates.of(link)
    fastest = np.ones(groups)
    if len(group):
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        fastest[group[begins]] = np.minimum.reduceat(rate / load, begins)
        if limit is not None:
            fastest[group[begins]] = np.minimum(fastest, limit)[group[begins]]
    return _TakenLinks(fastest, group, link, load * fastest[group] / rate, np.zeros(len(group), bool))


def instant(groups: int) -> Pattern:
    """What takes no time and no link, for *groups* groups."""
    zero, none = np.zeros(groups), np.zeros(0, np.int64)
    return Pattern(
        factor=zero,
        bandwidth=np.ones_like(zero),
        **Timing(zero, zero, zero, zero)._asdict(),
        use_group=none,
        use_resource=none,
        use_amount=np.zeros(0),
        use_hold=np.zeros(0, bool),
    )


class Rates(NamedTuple):
    """Bytes/s reached of links: *efficiency* counts on those of the network, so does *gain*, up to the line rate."""

    machine: Machine
    efficiency: float
    bandwidth: Floats | None = None
    gain: float = 1.0

    def same(self, other: Rates) -> bool:
        """Whether both are those of one machine in one state."""
        here = self.machine is other.machine and self.bandwidth is other.bandwidth
        return here and (self.efficiency, self.gain) == (other.efficiency, other.gain)

    def of(self, links: Ints) -> Floats:
        """The rates of some links; those of the whole machine would be many."""
        own = np.asarray(self.machine.bandwidth if self.bandwidth is None else self.bandwidth)[links]
        line = np.maximum(own, np.asarray(self.machine.line_rate)[links])
        network = np.minimum(own * self.gain, line) * self.efficiency
        return np.where(np.asarray(self.machine.is_network)[links], network, own)


def loads(machine: Machine, edges: Edges) -> tuple[Ints, Ints, Floats]:
    """(Group, link, bytes on the link per byte of ``factor * S``), sorted by group and link, each pair once."""
    pair, link = _routes(machine, edges)
    links = len(machine.bandwidth)
    key, place_of = np.unique(edges.group[pair] * links + link, return_inverse=True)
    share = edges.share[pair] / machine.flows_per_pair
    load: Floats = np.bincount(place_of.ravel(), weights=share, minlength=len(key)).astype(np.float64)
    return key // links, key % links, load


def _routes(machine: Machine, edges: Edges) -> tuple[Ints, Ints]:
    """(Index of the edge, link) of every flow of every edge."""
    if machine.flows_per_pair == 1:
        return machine.routes(edges.src, edges.dst)
    flows = [machine.routes(edges.src, edges.dst, flow) for flow in range(machine.flows_per_pair)]
    pair, link = (np.concatenate(column) for column in zip(*flows, strict=True))
    return pair, link
