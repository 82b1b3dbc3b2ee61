"""Which algorithm carries out a collective: one that is named, or the quickest of those that a library would use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trainsim.collectives import Bools, Floats, Ints, PlacedGroups, algorithms
from trainsim.collectives.latency import least_latency
from trainsim.collectives.place import place
from trainsim.collectives.protocols import with_protocol
from trainsim.collectives.traffic import Rates, carried, switching
from trainsim.contracts.system import Pattern
from trainsim.errors import InvalidPlan

MIB = 2.0**20
OF_A_GROUP = ("factor", "bandwidth", "latency", "ramp", "chain", "chain_bytes")
"""Columns of a pattern that have a number per group."""


def quickest(placement: PlacedGroups, operation: str, rates: Rates, protocol: str = "") -> Pattern:
    """Every group with the algorithm that takes the shortest time for ``auto_mib`` of data; of equals the first.

    Weighed are all that are registered, do the operation, fit the group and are not held back by ``automatic``. Groups
    that lie alike in their domains get the same one, which is weighed for the first of them on a machine that is whole:
    a library does not know what is wrong with a link, or what leaves are like. A *protocol* leaves those that have it.
    Raises InvalidPlan if none has.
    """
    able = candidates(placement, operation)
    if protocol:
        able = {name: which for name, which in able.items() if algorithms[name].steps is not None}
    names = list(able)
    if not names:
        having = " and ".join(name for name in algorithms if algorithms[name].steps is not None)
        raise InvalidPlan(f"protocol {protocol}: {operation} has no choice of protocols; {having} have")
    if len(names) == 1:
        return _offer(placement, operation, names[0], able[names[0]], rates, protocol).pattern
    first, kind = _kinds(placement)
    sample = placement if len(first) == len(kind) else place(placement.machine, placement.members[first])
    seconds = np.full((len(names), len(first)), np.inf)
    for row, name in zip(seconds, names, strict=True):
        offer = _offer(sample, operation, name, able[name][first], rates._replace(bandwidth=None), protocol)
        row[offer.groups] = _seconds(offer.pattern, placement.machine.constants["auto_mib"] * MIB)
    best = seconds.argmin(axis=0)[kind]
    taken = [(names[k], best == k) for k in np.unique(best)]
    return _merged([_offer(placement, operation, name, which, rates, protocol) for name, which in taken])


def _kinds(placement: PlacedGroups) -> tuple[Ints, Ints]:
    """(First group of each kind, kind of each group): those of a kind have the same GPUs of as many domains."""
    begins = np.zeros(placement.members.size, np.int64)
    begins[placement.first] = 1
    places = 2 * (placement.members % placement.machine.gpus_per_node) + begins.reshape(placement.members.shape)
    _, first, kind = np.unique(places, axis=0, return_index=True, return_inverse=True)
    every = np.arange(len(places))
    return (every, every) if len(first) == len(places) else (first, kind.ravel())


def candidates(placement: PlacedGroups, operation: str) -> Mapping[str, Bools]:
    """Names of the algorithms that ``auto`` weighs, each with the groups that it may serve."""
    out: dict[str, Bools] = {}
    for name in algorithms:
        algorithm, which = algorithms[name], np.ones(len(placement.members), bool)
        if operation in algorithm.operations:
            which = which if algorithm.fits is None else which & algorithm.fits(placement)
            which = which if algorithm.automatic is None else which & algorithm.automatic(operation, placement)
            if which.any():
                out[name] = which
    return out


def refuse(placement: PlacedGroups, operation: str, name: str) -> None:
    """Raise InvalidPlan if the algorithm *name* does not do *operation* or cannot serve one of the groups."""
    algorithm = algorithms[name]
    if operation not in algorithm.operations:
        able = [other for other in algorithms if operation in algorithms[other].operations]
        raise InvalidPlan(f"algorithm {name} does not do {operation}; auto or {' or '.join(able)} would")
    if algorithm.fits is not None and not algorithm.fits(placement).all():
        group = placement.members[~algorithm.fits(placement)][:1]
        others = candidates(place(placement.machine, group), operation)
        ranks = ", ".join(map(str, group[0])) if group.size <= 4 else f"{group[0, 0]} to {group[0, -1]}"
        raise InvalidPlan(
            f"algorithm {name} needs {algorithm.needs}; the group of ranks {ranks} is not like that: "
            f"auto or {' or '.join(others)} would work"
        )


class _Offer(NamedTuple):
    """How one algorithm would serve some groups: group k of ``pattern`` is ``groups[k]``."""

    groups: Ints
    pattern: Pattern


def _offer(
    placement: PlacedGroups, operation: str, name: str, which: Bools, rates: Rates, protocol: str = ""
) -> _Offer:
    """With the latency of the quickest algorithm for small buffers: that is what a library would use for those, where
    it is free to choose the protocol."""
    served = placement if which.all() else place(placement.machine, placement.members[which])
    if protocol:
        return _Offer(np.flatnonzero(which), with_protocol(served, operation, name, protocol, rates))
    algorithm = algorithms[name]
    made = carried(served, operation, algorithm, rates)
    quick = np.minimum(made.latency, least_latency(operation, served))
    if operation == "all_reduce" and not algorithm.small_rate:  # small ones take a tree
        small = switching(made, served.machine.constants["tree_small_rate"])
        made = replace(made, chain_bytes=np.where(served.domains > 1, small.chain_bytes, made.chain_bytes))
    return _Offer(np.flatnonzero(which), replace(made, latency=quick))


def _seconds(p: Pattern, nbytes: float) -> Floats:
    """Seconds alone of every group."""
    x = nbytes * p.factor / p.bandwidth
    return np.asarray(p.latency + x + 2.0 * np.sqrt(x * p.ramp) + p.chain * nbytes / (nbytes + p.chain_bytes))


def _merged(offers: Sequence[_Offer]) -> Pattern:
    """One pattern of all groups, of which each is in one of *offers*; uses in the order of groups."""
    if len(offers) == 1:
        return offers[0].pattern
    at = np.argsort(np.concatenate([offer.groups for offer in offers]))
    use_group = np.concatenate([offer.groups[offer.pattern.use_group] for offer in offers])
    order = np.argsort(use_group, kind="stable")

    def joined(column: str) -> Any:
        return np.concatenate([getattr(offer.pattern, column) for offer in offers])

    return Pattern(
        **{name: joined(name)[at] for name in OF_A_GROUP},
        use_group=use_group[order],
        **{name: joined(name)[order] for name in ("use_resource", "use_amount", "use_hold")},
    )
