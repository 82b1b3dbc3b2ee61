"""Which algorithm carries out a collective: one that is named, or the quickest of those that a library would use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trainsim.collectives import Algorithm, Bools, Floats, Ints, PlacedGroups, algorithms
from trainsim.collectives.latency import least_latency, tree_ramp
from trainsim.collectives.place import place
from trainsim.collectives.traffic import Rates, carried
from trainsim.contracts.system import Pattern
from trainsim.errors import InvalidPlan

MIB = 2.0**20
OF_A_GROUP = ("factor", "bandwidth", "latency", "ramp", "chain", "chain_bytes")
"""Columns of a pattern that have a number per group."""


def quickest(placement: PlacedGroups, operation: str, rates: Rates) -> Pattern:
    """Every group with the algorithm that takes the shortest time for ``auto_mib`` of data; of equals the first.

    Weighed are all that are registered, do the operation, fit the group and are not held back by ``automatic``.
    """
    able = candidates(placement, operation)
    offers = [_offer(placement, operation, algorithms[name], which, rates) for name, which in able.items()]
    if len(offers) == 1:
        return offers[0].pattern
    seconds = np.full((len(offers), len(placement.members)), np.inf)
    for row, offer in zip(seconds, offers, strict=True):
        row[offer.groups] = _seconds(offer.pattern, placement.machine.constants["auto_mib"] * MIB)
    best = seconds.argmin(axis=0)
    return _merged([offer.only(best[offer.groups] == k) for k, offer in enumerate(offers)], len(best))


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
        group = placement.members[~algorithm.fits(placement)][0]
        raise InvalidPlan(
            f"algorithm {name} needs {algorithm.needs}; the group of ranks {group[0]} to {group[-1]} "
            "is not like that: auto or ring would work"
        )


class _Offer(NamedTuple):
    """How one algorithm would serve some groups: group k of ``pattern`` is ``groups[k]``."""

    groups: Ints
    pattern: Pattern

    def only(self, chosen: Bools) -> _Offer:
        """The same for some of the groups."""
        if chosen.all():
            return self
        p, number = self.pattern, np.cumsum(chosen) - 1
        uses = chosen[p.use_group]
        part = Pattern(
            **{name: getattr(p, name)[chosen] for name in OF_A_GROUP},
            use_group=number[p.use_group[uses]],
            use_resource=p.use_resource[uses],
            use_amount=p.use_amount[uses],
            use_hold=p.use_hold[uses],
        )
        return _Offer(self.groups[chosen], part)


def _offer(placement: PlacedGroups, operation: str, algorithm: Algorithm, which: Bools, rates: Rates) -> _Offer:
    """With the latency of the quickest algorithm for small buffers: that is what a library would use for those.

    An all-reduce gives up a long chain of ranks for a tree, where that takes longer to get going than a tree does.
    """
    served = placement if which.all() else place(placement.machine, placement.members[which])
    made = carried(served, operation, algorithm, rates)
    quick = np.minimum(made.latency, least_latency(operation, served))
    if operation == "all_reduce" and algorithm.chain is not None:
        made = replace(made, ramp=tree_ramp(operation, served), chain=np.zeros_like(made.chain))
    return _Offer(np.flatnonzero(which), replace(made, latency=quick))


def _seconds(p: Pattern, nbytes: float) -> Floats:
    """Seconds alone of every group."""
    x = nbytes * p.factor / p.bandwidth
    return np.asarray(p.latency + x + 2.0 * np.sqrt(x * p.ramp) + p.chain * nbytes / (nbytes + p.chain_bytes))


def _merged(offers: Sequence[_Offer], groups: int) -> Pattern:
    """One pattern of *groups* groups, of which each is in one of *offers*; uses in the order of groups."""
    offers = [offer for offer in offers if len(offer.groups)]
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
