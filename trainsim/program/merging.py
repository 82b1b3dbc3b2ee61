"""
Several systems on the links of one machine: one system, in which each keeps its programs, ranks and groups.

Ranks are numbered job by job. A communicator that several jobs have keeps its name and has the groups of all of them:
no program is touched, and a rank meets those of its own job only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from trainsim.contracts.groups import Peers
from trainsim.contracts.instructions import Kernel, Program, Task, Template, Wait
from trainsim.contracts.system import Bools, Communicator, Ints, Pattern, System

START = "start"
"""``work`` of the task in which a chain waits for the start of its job."""
_USES = ("use_group", "use_resource", "use_amount", "use_hold")
_NONE = np.zeros(0, np.int64)
_NOTHING = Pattern(
    factor=np.zeros(1), bandwidth=np.ones(1), latency=np.zeros(1), ramp=np.zeros(1), chain=np.zeros(1),
    chain_bytes=np.zeros(1), use_group=_NONE, use_resource=_NONE, use_amount=np.zeros(0), use_hold=np.zeros(0, bool),
)  # fmt: skip
"""An operation of one group that nobody there posts."""


def merged(systems: Sequence[System], links: int) -> System:
    """*systems* at one time on a machine of *links*, which are the first resources of each; the others are its own.

    A link that several of them use has no owner. Outages of links are those of all: each is that of the machine.
    """
    ranks = [system.ranks for system in systems]
    first_rank, first_program = _before(ranks), _before([len(system.programs) for system in systems])
    own = [system.resources - links for system in systems]
    shift = _before(own)
    moved = [_moved(system, links, by) for system, by in zip(systems, shift, strict=True)]
    return System(
        programs=tuple(program for system in systems for program in system.programs),
        program_of=np.concatenate([s.program_of + k for s, k in zip(systems, first_program, strict=True)]),
        slow=np.concatenate([system.slow for system in systems]),
        communicators=_communicators(moved, ranks),
        resources=links + sum(own),
        sm=np.concatenate([system.sm for system in moved]),
        hbm=np.concatenate([system.hbm for system in moved]),
        owner=_owner(systems, links, first_rank),
        outages=tuple(dict.fromkeys(outage for system in systems for outage in system.outages)),
        names=systems[0].names,
    )


def started(system: System, seconds: float) -> System:
    """*system* as it is when all of it begins *seconds* later."""
    if not seconds:
        return system
    pairs = np.stack([system.program_of.astype(np.float64), system.slow], axis=1)
    different, program_of = np.unique(pairs, axis=0, return_inverse=True)
    programs = (_later(system.programs[int(k)], seconds / slow) for k, slow in different.tolist())
    return replace(system, programs=tuple(programs), program_of=program_of.ravel().astype(np.int64))


def _later(program: Program, seconds: float) -> Program:
    """*program* whose chains wait for the start, but for those that wait for others anyway."""
    wait = Template.of(START, 0, [Kernel(START, "delay", seconds, 0.0, 0.0)])
    chains = {
        name: tasks if not tasks or _waits(tasks[0].template) else (Task(wait, tasks[0].microbatch), *tasks)
        for name, tasks in program.chains.items()
    }
    return replace(program, chains=chains)


def _waits(template: Template) -> bool:
    return bool(template.instructions) and isinstance(template.instructions[0], Wait)


def _before(sizes: Sequence[int]) -> list[int]:
    """How many there are before each."""
    return [sum(sizes[:k]) for k in range(len(sizes))]


def _moved(system: System, links: int, by: int) -> System:
    """*system* whose resources beside the links have numbers *by* higher."""

    def put(resource: Ints) -> Ints:
        return np.where(resource >= links, resource + by, resource)

    communicators = {
        peers: replace(c, patterns={op: replace(p, use_resource=put(p.use_resource)) for op, p in c.patterns.items()})
        for peers, c in system.communicators.items()
    }
    return replace(system, communicators=communicators, sm=put(system.sm), hbm=put(system.hbm))


def _owner(systems: Sequence[System], links: int, first_rank: Sequence[int]) -> Ints:
    """The owner of each resource: of a link, that of the only job that uses it."""
    users, owner = np.zeros(links, np.int64), np.full(links, -1, np.int64)
    own = [np.where(s.owner >= 0, s.owner + k, -1) for s, k in zip(systems, first_rank, strict=True)]
    for system, owners in zip(systems, own, strict=True):
        used = used_links(system, links)
        users += used
        owner = np.where(used | ((owner < 0) & (users == 0)), owners[:links], owner)
    return np.concatenate([np.where(users > 1, -1, owner), *(owners[links:] for owners in own)]).astype(np.int64)


def used_links(system: System, links: int) -> Bools:
    """Which of the machine's *links* the operations of a system load."""
    used = np.zeros(system.resources, np.bool_)
    for communicator in system.communicators.values():
        for pattern in communicator.patterns.values():
            used[pattern.use_resource] = True
    return used[:links]


def _communicators(systems: Sequence[System], ranks: Sequence[int]) -> dict[Peers, Communicator]:
    names = dict.fromkeys(peers for system in systems for peers in system.communicators)
    return {peers: _joined([s.communicators.get(peers) for s in systems], ranks) for peers in names}


def _joined(parts: Sequence[Communicator | None], ranks: Sequence[int]) -> Communicator:
    """The groups of all jobs that have a communicator of one name."""
    labels = next(len(part.group_of) for part in parts if part)
    groups = [part.groups if part else 0 for part in parts]
    columns: list[list[Ints]] = [[] for _ in range(labels)]
    for part, size, first in zip(parts, ranks, _before(groups), strict=True):
        for label, column in enumerate(columns):
            of = part.group_of[label] if part else np.full(size, -1, np.int64)
            column.append(np.where(of >= 0, of + first, -1))
    operations = dict.fromkeys(operation for part in parts if part for operation in part.patterns)
    return Communicator(
        group_of=tuple(np.concatenate(column) for column in columns),
        groups=sum(groups),
        patterns={op: _pattern([p.patterns.get(op) if p else None for p in parts], groups) for op in operations},
    )


def _pattern(parts: Sequence[Pattern | None], groups: Sequence[int]) -> Pattern:
    """One operation of all groups; those of a job that does not post it load nothing."""
    columns: dict[str, list[Any]] = {f.name: [] for f in fields(Pattern)}
    for part, size, first in zip(parts, groups, _before(groups), strict=True):
        for name, column in columns.items():
            values = getattr(part or _NOTHING, name)
            if part is None and name not in _USES:
                values = np.repeat(values, size)
            column.append(values + first if name == "use_group" else values)
    return Pattern(**{name: np.concatenate(column) for name, column in columns.items()})
