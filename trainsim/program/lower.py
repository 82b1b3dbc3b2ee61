"""
From a job to the system that the engine runs: programs, who runs them, in which groups, over which resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainsim.contracts.groups import Group, Peers
from trainsim.contracts.instructions import Meet, Program, Send
from trainsim.contracts.job import Delay, Job, Slow
from trainsim.contracts.system import Communicator, Floats, Ints, Pattern, System
from trainsim.program.network import Network
from trainsim.program.parts import Parts, work_out
from trainsim.program.step import delayed, rank_program
from trainsim.program.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A lowered job: the parts that it was made from and the system that the engine runs."""

    parts: Parts
    system: System


def lower(job: Job) -> Plan:
    """The programs of all ranks of *job* and the system they run on, verified.

    Raises InvalidPlan for layouts that lose layers, InvalidProgram when passes produced something illegal.
    """
    parts = work_out(job)
    programs, program_of = _programs(parts)
    communicators = parts.network.communicators({key for p in programs for key in _used(p)})
    links, ranks = job.cluster.links, job.parallel.ranks
    owners = _owners(job, communicators)
    for peers in communicators:
        if isinstance(peers, Group) and peers.beside:
            communicators[peers] = _with_gpu_shares(communicators[peers], parts.network, peers)
    rank = np.arange(ranks, dtype=np.int64)
    system = System(
        programs=programs,
        program_of=program_of,
        slow=_slow(job),
        communicators=communicators,
        resources=links + 2 * ranks,
        sm=links + rank,
        hbm=links + ranks + rank,
        owner=np.concatenate([owners, rank, rank]),
    )
    verify(system)
    return Plan(parts=parts, system=system)


def _programs(parts: Parts) -> tuple[tuple[Program, ...], Ints]:
    """One program per pipeline rank, and one more for each rank that loses time on its own."""
    job, slow = parts.job, _slow(parts.job)
    programs = [rank_program(parts, r) for r in range(job.parallel.pp)]
    coordinates = parts.network.mesh.coordinates(np.arange(job.parallel.ranks, dtype=np.int64))
    program_of = coordinates.get("pp", np.zeros(job.parallel.ranks, np.int64)).copy()
    delays: dict[int, list[Delay]] = {}
    for delay in job.what_if:
        if isinstance(delay, Delay):
            unscaled = replace(delay, seconds=delay.seconds / slow[delay.rank])  # a slow GPU loses no more than others
            delays.setdefault(delay.rank, []).append(unscaled)
    for rank, lost in sorted(delays.items()):
        programs.append(delayed(programs[int(program_of[rank])], lost))
        program_of[rank] = len(programs) - 1
    used, program_of = np.unique(program_of, return_inverse=True)  # all ranks of a stage may be delayed
    return tuple(programs[k] for k in used), program_of.astype(np.int64)


def _used(program: Program) -> Iterator[tuple[Peers, str]]:
    for tasks in program.chains.values():
        for template in {id(t.template): t.template for t in tasks}.values():
            for i in template.instructions:
                if isinstance(i, Meet):
                    yield i.communicator, i.operation
                elif isinstance(i, Send):
                    yield i.communicator, "message"


def _slow(job: Job) -> Floats:
    slow = np.ones(job.parallel.ranks)
    for what in job.what_if:
        if isinstance(what, Slow):
            slow[list(what.ranks)] *= what.factor
    return slow


def _with_gpu_shares(communicator: Communicator, network: Network, group: Group) -> Communicator:
    """The same groups, whose collectives also hold SMs and move bytes through the HBM of every member."""
    patterns = {op: _gpu_shares(p, network, group) for op, p in communicator.patterns.items()}
    return replace(communicator, patterns=patterns)


def _gpu_shares(pattern: Pattern, network: Network, group: Group) -> Pattern:
    """NCCL's blocks hold their SMs however slow the network is; every byte on the wire is read and written."""
    cluster, members = network.job.cluster, network.members(group)
    constants, gpu = cluster.constants, cluster.gpu
    domains = np.sort(cluster.domain_of(network.gpu_of(members)), axis=1)
    near = np.any(domains[:, 1:] == domains[:, :-1], axis=1)  # two members of a node: their channels use NVLink too
    hold = np.where(near, constants["sm_nvlink"], constants["sm_network"])
    moved = np.minimum(1.0, constants["hbm_passes"] * pattern.bandwidth / gpu.memory_bandwidth)
    of = np.repeat(np.arange(len(members), dtype=np.int64), members.shape[1])
    rank, links = members.ravel(), cluster.links
    sizes, ranks = len(of), network.job.parallel.ranks
    return replace(
        pattern,
        use_group=np.concatenate([pattern.use_group, of, of]),
        use_resource=np.concatenate([pattern.use_resource, links + rank, links + ranks + rank]),
        use_amount=np.concatenate([pattern.use_amount, hold[of], moved[of]]),
        use_hold=np.concatenate([pattern.use_hold, np.ones(sizes, bool), np.zeros(sizes, bool)]),
    )


def _owners(job: Job, communicators: dict[Peers, Communicator]) -> Ints:
    """Per link the rank without whose own post nothing uses it, or -1."""
    owner = job.allocation.rank_of(job.cluster.owner_of).astype(np.int64, copy=True)
    owner[owner >= job.parallel.ranks] = -1
    for communicator in communicators.values():
        posts = communicator.group_of[0]
        for pattern in communicator.patterns.values():
            mine = owner[pattern.use_resource]
            foreign = (mine >= 0) & (posts[np.maximum(mine, 0)] != pattern.use_group)
            owner[pattern.use_resource[foreign]] = -1
    return owner
