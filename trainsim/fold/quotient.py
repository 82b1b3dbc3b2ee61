"""
The folded system: one representative of each class of ranks, groups and resources.

A meeting of a group class starts when each distinct class of its members has posted. What a group class loads on a
resource class is counted as ONE resource sees it: how many groups of the class use it, with which amounts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from trainsim.contracts.groups import Peers
from trainsim.contracts.system import Bools, Communicator, Floats, Ints, Outage, Pattern, System
from trainsim.fold.graph import Graph, graph_of, row_ids
from trainsim.fold.refine import refine

FEW, MOST_KEPT = 1024, 64
"""Ranks of a system whose classes are kept for the next one that is like it, and how many: a sweep has many alike."""
_KEPT: dict[tuple[object, ...], Quotient] = {}

Load = tuple[int, float, int]
"""(Resource class, fraction of one such resource, how many such uses one resource sees)."""


class Loads(NamedTuple):
    """What one operation of a group class takes: in proportion to its speed, and for as long as it runs."""

    loads: tuple[Load, ...]
    holds: tuple[Load, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClass:
    """Groups of one communicator that behave alike; ``group`` is one of them.

    ``posters`` is the number of rank classes whose posts make a meeting. ``one_program``: all members run the same.
    """

    communicator: Peers
    group: int
    posters: int
    uses: dict[str, Loads]
    one_program: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quotient:
    """Everything that the engine needs, by class.

    ``group_of[communicator, label][rank class]`` is a group class or -1; ``sm`` and ``hbm`` are the resource class of
    each rank class, or -1. ``owned``: nothing uses a resource of the class without its own rank's post or kernel.
    ``outages`` are those of the classes of resources.
    """

    system: System
    rank_class: Ints
    representative: Ints
    groups: tuple[GroupClass, ...]
    group_of: dict[tuple[Peers, int], Ints]
    resources: int
    sm: Ints
    hbm: Ints
    owned: Bools
    outages: tuple[Outage, ...] = ()
    rounds: int = 0

    @property
    def classes(self) -> int:
        return len(self.representative)


def fold(system: System) -> Quotient:
    """One class for all ranks that behave alike; exact, for whatever is deterministic and fair."""
    if system.ranks > FEW:
        return _folded(system)
    key = _content(system)
    if key not in _KEPT:
        while len(_KEPT) >= MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        quotient = _folded(system)
        _KEPT[key] = replace(quotient, system=replace(system, programs=()))
        return quotient
    return replace(_KEPT[key], system=system)


def _folded(system: System) -> Quotient:
    graph = graph_of(system)
    colour, rounds = refine(graph.colour, graph.a, graph.b, graph.label)
    return _quotient(system, graph, colour, rounds)


def _content(system: System) -> tuple[object, ...]:
    """All that the classes of *system* depend on: who runs the same program, and who uses what with whom."""
    columns: list[Ints | Bools | Floats] = [system.program_of, system.slow, system.sm, system.hbm, system.owner]
    names: list[object] = [system.resources, system.outages]
    for peers, communicator in system.communicators.items():
        names += [peers, communicator.groups, tuple(communicator.patterns), len(communicator.group_of)]
        columns += communicator.group_of
        for p in communicator.patterns.values():
            columns += p.timing
            columns += [p.use_group, p.use_resource, p.use_amount, p.use_hold]
    text = blake2b(digest_size=32)
    for column in columns:
        text.update(np.ascontiguousarray(column).data)
    return (*names, *((len(column), column.dtype.char) for column in columns), text.digest())


def unfolded(system: System) -> Quotient:
    """Every rank, group and resource on its own: the same thing without folding."""
    graph = graph_of(system)
    return _quotient(system, graph, np.arange(len(graph.colour)), 0)


def _quotient(system: System, graph: Graph, colour: Ints, rounds: int) -> Quotient:
    representative, rank_class = _classes(colour[: system.ranks])
    first, resource_class = _classes(colour[graph.resources_at :])
    of = np.full(system.resources, -1)
    of[graph.used] = resource_class
    seen = np.zeros(system.resources, bool)
    seen[graph.used[first]] = True
    owned = np.ones(len(first), bool)
    owned[resource_class[system.owner[graph.used] < 0]] = False
    owned[[int(of[outage.resource]) for outage in system.outages if of[outage.resource] >= 0]] = False
    groups: list[GroupClass] = []
    group_of: dict[tuple[Peers, int], Ints] = {}
    for name, communicator in system.communicators.items():
        start = graph.groups_at[name]
        first, group_class = _classes(colour[start : start + communicator.groups])
        for label, group in enumerate(communicator.group_of):
            joined = group[representative]
            group_of[name, label] = np.where(joined >= 0, group_class[joined] + len(groups), -1)
        members = _Members(communicator, group_class, rank_class)
        uses = {op: _loads(p, seen, of, group_class) for op, p in communicator.patterns.items()}
        groups += _group_classes(system, name, first, members, uses)
    return Quotient(
        system=system,
        rank_class=rank_class,
        representative=representative,
        groups=tuple(groups),
        group_of=group_of,
        resources=len(owned),
        sm=_own(system.sm, representative, of),
        hbm=_own(system.hbm, representative, of),
        owned=owned,
        outages=tuple(o._replace(resource=int(of[o.resource])) for o in system.outages if seen[o.resource]),
        rounds=rounds,
    )


def _classes(colour: Ints) -> tuple[Ints, Ints]:
    """(First node of each class, class of each node)."""
    _, first, inverse = np.unique(colour, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.astype(np.int64)


def _own(resource: Ints, representative: Ints, of: Ints) -> Ints:
    chosen = resource[representative]
    return np.asarray(np.append(of, -1)[chosen], np.int64)  # -1 picks what was appended


class _Members:
    """Who meets in the groups of one communicator."""

    def __init__(self, communicator: Communicator, group_class: Ints, rank_class: Ints):
        posting = communicator.group_of[0]
        rank = np.flatnonzero(posting >= 0)
        pairs = np.unique(group_class[posting[rank]] * len(rank_class) + rank_class[rank]) // len(rank_class)
        self.posters = np.bincount(pairs, minlength=int(group_class.max(initial=-1)) + 1)
        self.rank, self.group = rank, posting[rank]
        self.groups = communicator.groups

    def one_program(self, program_of: Ints) -> Bools:
        """Per group: do all its members run the same program?"""
        lowest = np.full(self.groups, np.iinfo(np.int64).max)
        highest = np.full(self.groups, -1)
        np.minimum.at(lowest, self.group, program_of[self.rank])
        np.maximum.at(highest, self.group, program_of[self.rank])
        same: Bools = lowest == highest
        return same


def _group_classes(
    system: System, name: Peers, first: Ints, members: _Members, uses: dict[str, list[Loads]]
) -> list[GroupClass]:
    one_program = members.one_program(system.program_of)
    return [
        GroupClass(
            communicator=name,
            group=group,
            posters=int(members.posters[k]),
            uses={operation: loads[k] for operation, loads in uses.items()},
            one_program=bool(one_program[group]),
        )
        for k, group in enumerate(first.tolist())
    ]


def _loads(pattern: Pattern, seen: Bools, of: Ints, group_class: Ints) -> list[Loads]:
    """Per group class, what one resource of each class sees of it."""
    on = seen[pattern.use_resource]
    amounts, amount = np.unique(pattern.use_amount[on], return_inverse=True)
    columns = (group_class[pattern.use_group[on]], pattern.use_hold[on], of[pattern.use_resource[on]], amount)
    _, first, count = np.unique(row_ids(*columns), return_index=True, return_counts=True)
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    out: list[tuple[list[Load], list[Load]]] = [([], []) for _ in range(int(group_class.max(initial=-1)) + 1)]
    for (group, hold, resource, which), n in zip(rows, count.tolist(), strict=True):
        out[group][hold].append((resource, float(amounts[which]), n))
    return [Loads(tuple(loads), tuple(holds)) for loads, holds in out]
