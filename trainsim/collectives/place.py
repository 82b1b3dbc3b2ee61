"""Where the members of groups lie: sorted by domain, in an order that follows direct links inside one."""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Bools, Ints, Machine, PlacedGroups
from trainsim.errors import InvalidPlan


def place(machine: Machine, members: Ints) -> PlacedGroups:
    """The groups *members* [groups, size] on *machine*; the order in which members are given does not matter.

    Raises InvalidPlan for a rank that the machine does not have or that is twice in a group.
    """
    members = np.atleast_2d(np.asarray(members, np.int64))
    if members.ndim != 2 or members.shape[1] == 0:
        raise InvalidPlan(f"a collective needs groups of one rank or more, not an array of shape {members.shape}")
    members = np.sort(members, axis=1)
    _check(machine, members)
    domain = np.asarray(machine.domain_of(members.ravel()), np.int64).reshape(members.shape)
    by_domain = np.argsort(domain, axis=1, kind="stable")
    members = np.take_along_axis(members, by_domain, axis=1)
    domain = np.take_along_axis(domain, by_domain, axis=1)
    starts = np.ones(members.shape, bool)
    starts[:, 1:] = domain[:, 1:] != domain[:, :-1]
    return _segments(machine, members, starts)


def _segments(machine: Machine, members: Ints, starts: Bools) -> PlacedGroups:
    first = np.flatnonzero(starts.ravel())
    size = np.diff(first, append=members.size)
    group = first // members.shape[1]
    of_group = np.flatnonzero(np.diff(group, prepend=-1))
    return PlacedGroups(
        machine=machine,
        members=members,
        group=group,
        first=first,
        size=size,
        domains=starts.sum(axis=1),
        local=np.maximum.reduceat(size, of_group) if len(of_group) else np.zeros(0, np.int64),
    )


def _check(machine: Machine, members: Ints) -> None:
    if members.size and (members[:, 0].min() < 0 or members[:, -1].max() >= machine.ranks):
        wrong = members[(members < 0) | (members >= machine.ranks)][0]
        raise InvalidPlan(f"rank {wrong} is not on this machine; it has ranks 0 to {machine.ranks - 1}")
    twice = members[:, 1:][members[:, 1:] == members[:, :-1]]
    if twice.size:
        raise InvalidPlan(f"rank {twice[0]} is twice in a group; a group holds each rank once")
