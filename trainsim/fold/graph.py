"""
A system as one graph with coloured nodes and labelled edges: what refinement works on.

Nodes are ranks, then the groups of each communicator, then the resources that something uses. First colours hold
everything about a node that is not a neighbour: a rank's program and slowness, a group's bandwidths and latencies.
Edges are rank - group (by communicator and the member's part), group - resource (by operation, amount and kind of
use), rank - own SMs and rank - own HBM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainsim.contracts.groups import Peers
from trainsim.contracts.system import Bools, Communicator, Floats, Ints, Pattern, System


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """Edges are the columns ``a``, ``b``, ``label``. ``groups_at`` is each communicator's first group node."""

    colour: Ints
    a: Ints
    b: Ints
    label: Ints
    groups_at: dict[Peers, int]
    resources_at: int
    used: Ints  # the resources that have a node, in the order of their nodes


def graph_of(system: System) -> Graph:
    """The graph of *system*."""
    used, at = used_resources(system), system.ranks
    colours, edges = _Colours(), _GraphEdges()
    colours.add(system.program_of, system.slow)
    groups_at: dict[Peers, int] = {}
    resources_at = system.ranks + sum(system.communicators[t[0]].groups for t in _twins(system.communicators))
    node = np.full(system.resources, -1)
    node[used] = resources_at + np.arange(len(used))
    for names in _twins(system.communicators):
        twins = [system.communicators[name] for name in names]
        groups_at.update(dict.fromkeys(names, at))
        colours.add(*(column for twin in twins for column in _constants(twin)))
        for group in twins[0].group_of:
            member = np.flatnonzero(group >= 0)
            edges.add(member, group[member] + at)
        for p in distinct([p for twin in twins for p in twin.patterns.values()]):
            edges.add(p.use_group + at, node[p.use_resource], row_ids(p.use_amount, p.use_hold))
        at += twins[0].groups
    for own in (system.sm, system.hbm):
        rank = np.flatnonzero(own >= 0)
        edges.add(rank, node[own[rank]])
    colours.add(_outages(system)[used])
    return Graph(
        colour=np.concatenate(colours.parts),
        a=np.concatenate(edges.a),
        b=np.concatenate(edges.b),
        label=np.concatenate(edges.label),
        groups_at=groups_at,
        resources_at=resources_at,
        used=used,
    )


def _outages(system: System) -> Ints:
    """Per resource a number of the outages that it has: the same for those that have the same."""
    of: dict[int, list[tuple[float, float, float]]] = {}
    for resource, *when in system.outages:
        of.setdefault(resource, []).append((when[0], when[1], when[2]))
    number: dict[tuple[tuple[float, float, float], ...], int] = {}
    out = np.zeros(system.resources, np.int64)
    for resource, every in of.items():
        out[resource] = number.setdefault(tuple(sorted(every)), len(number) + 1)
    return out


def used_resources(system: System) -> Ints:
    """The resources that a kernel or an operation can load, ascending."""
    seen = np.zeros(system.resources, bool)
    for own in (system.sm, system.hbm):
        seen[own[own >= 0]] = True
    for pattern in _patterns(system):
        seen[pattern.use_resource] = True
    return np.flatnonzero(seen)


def _twins(communicators: dict[Peers, Communicator]) -> list[list[Peers]]:
    """Communicators over the same groups of ranks share their nodes: those that do, together."""
    out: list[list[Peers]] = []
    for name, communicator in communicators.items():
        groups = communicator.group_of
        for twins in out:
            others = communicators[twins[0]].group_of
            if len(groups) == len(others) and all(map(np.array_equal, groups, others)):
                twins.append(name)
                break
        else:
            out.append([name])
    return out


def distinct(patterns: list[Pattern]) -> list[Pattern]:
    """*patterns* with one of all patterns that use the same resources in the same way: the others tell nothing new."""
    out: list[Pattern] = []
    for p in patterns:
        if not any(_same_uses(p, q) for q in out):
            out.append(p)
    return out


def _same_uses(p: Pattern, q: Pattern) -> bool:
    columns = ("use_group", "use_resource", "use_amount", "use_hold")
    return all(np.array_equal(getattr(p, column), getattr(q, column)) for column in columns)


def _patterns(system: System) -> list[Pattern]:
    return [p for c in system.communicators.values() for p in c.patterns.values()]


def _constants(communicator: Communicator) -> list[Floats]:
    columns = [c for p in communicator.patterns.values() for c in p.timing]
    return columns or [np.zeros(communicator.groups)]


class _Colours:
    """First colours, node kind by node kind; no two kinds share one."""

    def __init__(self) -> None:
        self.parts: list[Ints] = []
        self._next = 0

    def add(self, *columns: Ints | Floats) -> None:
        colour = row_ids(*columns) + self._next
        self.parts.append(colour)
        self._next = int(colour.max(initial=self._next)) + 1


class _GraphEdges:
    """Edge columns, kind by kind; no two kinds share a label."""

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        self.a, self.b, self.label = [none], [none], [none]
        self._next = 0

    def add(self, a: Ints, b: Ints, label: Ints | None = None) -> None:
        label = np.zeros(len(a), np.int64) if label is None else label
        self.a.append(a)
        self.b.append(b)
        self.label.append(label + self._next)
        self._next += int(label.max(initial=0)) + 1


def row_ids(*columns: Ints | Floats | Bools) -> Ints:
    """Rows of columns to dense ids in the order of the rows, exactly: one sort per column that is not constant."""
    out = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            inverse = np.unique(column, return_inverse=True)[1]
            out = np.unique(out * (int(inverse.max()) + 1) + inverse, return_inverse=True)[1]
    return out.astype(np.int64)
