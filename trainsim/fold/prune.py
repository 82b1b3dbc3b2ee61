"""
Resources that can never be full are forgotten before folding: nobody is ever slowed by them.

A resource can be full only if all that may use it at one time, at full speed, takes more than there is. What may be
at one time follows from the programs. A chain does one thing at a time: a kernel, or a collective that it posted,
so the collectives that compute itself posts never meet the kernels of that rank. A group that a rank is not in is
counted once for each chain that may post there. Messages run beside everything, as many as the program sends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from trainsim.contracts.exact import GRAIN
from trainsim.contracts.groups import Group, Messages, Peers
from trainsim.contracts.instructions import Kernel, Program
from trainsim.contracts.system import Bools, Communicator, Floats, Ints, Pattern, System
from trainsim.fold.graph import distinct


def prune(system: System) -> System:
    """*system* without the resources that can never be full; every time stays the same, to the last bit."""
    binds = _most_at_one_time(system) > 1.0
    communicators = {
        name: replace(c, patterns={op: _keep(p, binds) for op, p in c.patterns.items()})
        for name, c in system.communicators.items()
    }
    return replace(
        system,
        communicators=communicators,
        sm=_own(system.sm, binds),
        hbm=_own(system.hbm, binds),
    )


def _own(resource: Ints, binds: Bools) -> Ints:
    return np.where((resource >= 0) & binds[resource], resource, -1) if len(binds) else resource


def _keep(pattern: Pattern, binds: Bools) -> Pattern:
    return pattern.only(binds[pattern.use_resource] & (_grains(pattern.use_amount) > 0))


@dataclass(slots=True)
class _Habits:
    """What the chains of one program may do."""

    sm: dict[str, float] = field(default_factory=dict)  # chain -> most that one of its kernels takes
    hbm: dict[str, float] = field(default_factory=dict)
    posts: dict[str, set[Group]] = field(default_factory=dict)  # chain -> communicators it posts to
    operations: set[tuple[Group, str]] = field(default_factory=set)  # (communicator, operation)
    flights: Counter[Peers] = field(default_factory=Counter)  # communicator -> its messages at one time, at most


def _habits(program: Program) -> _Habits:
    out = _Habits()
    for name, columns in program.columns.items():
        todo = list(zip(columns.templates, columns.times, strict=True))
        kernels = [i for template, _ in todo for i in template.instructions if isinstance(i, Kernel)]
        meets = {(id(i.communicator), i.operation): i for template, _ in todo for i in template.posted.meets}
        out.sm[name] = max((k.sm for k in kernels), default=0.0)
        out.hbm[name] = max((k.hbm for k in kernels), default=0.0)
        out.posts[name] = {m.communicator for m in meets.values()}
        out.operations |= {(m.communicator, m.operation) for m in meets.values()}
        sends: dict[Messages, tuple[int, bool]] = {}
        for i, times in ((i, times) for template, times in todo for i in template.posted.sends):
            before, blocking = sends.get(i.communicator, (0, True))
            sends[i.communicator] = before + times, blocking and i.blocking
        out.flights.update({c: 1 if blocking else times for c, (times, blocking) in sends.items()})
    return out


def _most_at_one_time(system: System) -> Floats:
    """Per resource, in capacities: more than this is never asked of it."""
    habits = [_habits(program) for program in system.programs]
    reference = system.owner.copy()
    for own in (system.sm, system.hbm):
        rank = np.flatnonzero(own >= 0)
        reference[own[rank]] = rank
    total = np.zeros(system.resources)
    collectives: dict[Peers, Floats] = {}
    for peers, communicator in system.communicators.items():
        of_owner, foreign = _uses(communicator, peers, habits, reference)
        if communicator.is_message:
            flights = np.array([h.flights[peers] for h in habits])
            total += of_owner * flights[system.program_of[reference]] + foreign * flights.max()
        else:
            collectives[peers] = of_owner
            total += foreign * max(sum(peers in posted for posted in h.posts.values()) for h in habits)
    for chain in dict.fromkeys(name for h in habits for name in h.posts):
        total += _busiest(system, habits, chain, collectives, system.program_of[reference])
    lost = np.zeros(system.resources)
    for outage in system.outages:
        lost[outage.resource] = max(lost[outage.resource], outage.lost)
    return total + np.where(total > 0, lost, 0.0)


def _busiest(
    system: System, habits: list[_Habits], chain: str, collectives: dict[Peers, Floats], program: Ints
) -> Floats:
    """The most that one chain of the rank that each resource belongs to takes at one time."""
    most = np.zeros(system.resources)
    for own, shares in ((system.sm, [h.sm for h in habits]), (system.hbm, [h.hbm for h in habits])):
        rank = np.flatnonzero(own >= 0)
        of_program = _grains(np.array([share.get(chain, 0.0) for share in shares]))
        most[own[rank]] = of_program[system.program_of[rank]]
    for peers, of_owner in collectives.items():
        posts = np.array([peers in h.posts.get(chain, ()) for h in habits])
        if posts.any():
            most = np.maximum(most, of_owner * posts[program])
    return most


def _uses(communicator: Communicator, peers: Peers, habits: list[_Habits], reference: Ints) -> tuple[Floats, Floats]:
    """Per resource: what the group of the rank it belongs to takes, and what all other groups take together."""
    used = [
        pattern
        for operation, pattern in communicator.patterns.items()
        if communicator.is_message or any((peers, operation) in h.operations for h in habits)
    ]
    patterns = distinct(used)
    of_owner, foreign = np.zeros(len(reference)), np.zeros(len(reference))
    others: list[tuple[Ints, Ints, Floats]] = []
    for p in patterns:
        amount, rank = _grains(p.use_amount), reference[p.use_resource]
        own = (rank >= 0) & (communicator.group_of[0][rank] == p.use_group)
        of_owner = np.maximum(of_owner, _sum(p.use_resource[own], amount[own], len(reference)))
        others.append((p.use_group[~own], p.use_resource[~own], amount[~own]))
    if len(others) == 1:
        foreign = _sum(others[0][1], others[0][2], len(reference))
    elif others:
        foreign = _largest_operation(others, len(reference))
    return of_owner, foreign


def _largest_operation(uses: list[tuple[Ints, Ints, Floats]], resources: int) -> Floats:
    """Per resource: the sum over groups of the operation of each group that takes most."""
    keys = [group * resources + resource for group, resource, _ in uses]
    key, where = np.unique(np.concatenate(keys), return_inverse=True)
    most, at = np.zeros(len(key)), 0
    for _, _, amount in uses:
        most = np.maximum(most, _sum(where[at : at + len(amount)], amount, len(key)))
        at += len(amount)
    return _sum(key % resources, most, resources)


def _sum(where: Ints, amounts: Floats, size: int) -> Floats:
    return np.bincount(where, amounts, size).astype(np.float64, copy=False)


def _grains(amounts: Floats) -> Floats:
    return np.rint(amounts / GRAIN) * GRAIN
