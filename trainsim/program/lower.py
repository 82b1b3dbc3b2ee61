"""
From a job to the system that the engine runs: programs, who runs them, in which groups, over which resources.

Lowering is a list of named passes over a draft of the system, with a check behind each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trainsim.contracts.groups import Group, Peers
from trainsim.contracts.instructions import Program
from trainsim.contracts.job import Delay, Job, Slow
from trainsim.contracts.system import Communicator, Floats, Ints, Pattern, System
from trainsim.errors import InvalidProgram
from trainsim.garbage import no_search_for_cycles
from trainsim.program.jitter import noisy_programs, slow_gpus
from trainsim.program.network import Network
from trainsim.program.outages import outages
from trainsim.program.parts import Parts
from trainsim.program.rearranged import worked_out
from trainsim.program.rollout import RolloutPlan, rollout_plan, with_rollout
from trainsim.program.step import delayed, rank_program
from trainsim.program.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lowered:
    """A lowered job: the parts that it was made from, the system that the engine runs, and how it generates."""

    parts: Parts
    system: System
    rollout: RolloutPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A system in the making; every pass adds a part of it or changes one."""

    parts: Parts
    programs: tuple[Program, ...] = ()
    program_of: Ints
    communicators: Mapping[Peers, Communicator] = field(default_factory=dict)
    owner: Ints
    rollout: RolloutPlan | None = None


def lower(job: Job) -> Lowered:
    """The programs of all ranks of *job* and the system they run on, verified.

    Raises InvalidPlan for layouts that lose layers, InvalidProgram when passes produced something illegal.
    """
    with no_search_for_cycles():
        return lowered(worked_out(job))


def lowered(parts: Parts) -> Lowered:
    """The system of a job whose blocks and stages are worked out, pass by pass, each of them checked."""
    nobody = np.zeros(0, np.int64)
    draft = Draft(parts=parts, program_of=nobody, owner=nobody)
    for lowering_pass, check in PASSES:
        draft = lowering_pass(draft)
        check(draft)
    system = _system(draft)
    verify(system)
    return Lowered(parts=parts, system=system, rollout=draft.rollout)


# -- the passes --------------------------------------------------------------------------------------------------


def stage_programs(draft: Draft) -> Draft:
    """One program per pipeline rank: all its replicas and tensor shards run it. Where experts are not in balance, one
    per pipeline rank and load."""
    parts = draft.parts
    ranks = np.arange(parts.job.parallel.ranks, dtype=np.int64)
    stage = parts.network.mesh.coordinates(ranks).get("pp", np.zeros(len(ranks), np.int64)).copy()
    if not parts.uneven:
        programs = tuple(rank_program(parts, rank) for rank in range(parts.job.parallel.pp))
        return replace(draft, programs=programs, program_of=stage)
    place = parts.network.expert_mesh.coordinates(ranks)["ep"]
    different = list({id(each): each for each in parts.uneven}.values())
    number = np.array([different.index(each) for each in parts.uneven], np.int64)[place]
    programs = tuple(rank_program(each, rank) for rank in range(parts.job.parallel.pp) for each in different)
    return replace(draft, programs=programs, program_of=stage * len(different) + number)


def rollouts(draft: Draft) -> Draft:
    """What a step generates, ahead of its passes."""
    plan = rollout_plan(draft.parts, draft.programs)
    if plan is None:
        return draft
    tp, pp = plan.rollout.tp, 1 if plan.rollout.separate else plan.rollout.pp
    rank = np.arange(len(draft.program_of), dtype=np.int64)
    pairs, program_of = np.unique(draft.program_of * pp + rank // tp % pp, return_inverse=True)
    programs = (with_rollout(draft.programs[k // pp], draft.parts, plan, k % pp) for k in pairs.tolist())
    return replace(draft, programs=tuple(programs), program_of=program_of.astype(np.int64), rollout=plan)


def delays(draft: Draft) -> Draft:
    """One more program for each rank that loses time on its own; those that nobody runs any more are left out."""
    programs, program_of = [*draft.programs], draft.program_of.copy()
    lost: dict[int, list[Delay]] = {}
    slow = _slow(draft.parts.job)
    for what in draft.parts.job.what_if:
        if isinstance(what, Delay):
            unscaled = replace(what, seconds=what.seconds / slow[what.rank])  # a slow GPU loses no more than others
            lost.setdefault(what.rank, []).append(unscaled)
    for rank, of_rank in sorted(lost.items()):
        programs.append(delayed(programs[int(program_of[rank])], of_rank))
        program_of[rank] = len(programs) - 1
    used, program_of = np.unique(program_of, return_inverse=True)  # all ranks of a stage may be delayed
    return replace(draft, programs=tuple(programs[k] for k in used), program_of=program_of.astype(np.int64))


def noise(draft: Draft) -> Draft:
    """A program for each rank where every kernel takes a time of its own."""
    programs, program_of = noisy_programs(draft.programs, draft.program_of, draft.parts.job)
    return replace(draft, programs=programs, program_of=program_of)


def communicators(draft: Draft) -> Draft:
    """Members and patterns of everything that the programs post to."""
    used = {key for program in draft.programs for key in _used(program)}
    return replace(draft, communicators=draft.parts.network.communicators(used))


def link_owners(draft: Draft) -> Draft:
    """Which links a single rank has to itself: what nobody else loads can never be full without it. Links that are
    down for a while belong to nobody."""
    owner = _owners(draft.parts.job, draft.communicators)
    owner[[outage.resource for outage in outages(draft.parts.job)]] = -1
    return replace(draft, owner=owner)


def gpu_shares(draft: Draft) -> Draft:
    """Collectives beside kernels hold SMs and load the HBM of the GPUs that they run on."""
    return replace(
        draft,
        communicators={
            peers: _with_gpu_shares(communicator, draft.parts.network, peers)
            if isinstance(peers, Group) and peers.beside
            else communicator
            for peers, communicator in draft.communicators.items()
        },
    )


def _check_programs(draft: Draft) -> None:
    """Every rank has a program, and every program is run by somebody."""
    ranks = draft.parts.job.parallel.ranks
    if len(draft.program_of) != ranks:
        raise InvalidProgram(f"{len(draft.program_of)} ranks have a program, {ranks} need one")
    if set(draft.program_of.tolist()) != set(range(len(draft.programs))):
        raise InvalidProgram("a program is left that no rank runs")


def _check_communicators(draft: Draft) -> None:
    """A rank is in a group of everything that its program posts to, which has a pattern for it."""
    for peers, communicator in draft.communicators.items():
        if not communicator.groups:
            raise InvalidProgram(f"{str(peers)!r} has no groups, and programs post to it")
        for operation, pattern in communicator.patterns.items():
            groups = pattern.use_group
            if len(groups) and not 0 <= int(groups.min()) <= int(groups.max()) < communicator.groups:
                raise InvalidProgram(f"{operation} of {str(peers)!r} loads links for a group that is not there")


PASSES: tuple[tuple[Callable[[Draft], Draft], Callable[[Draft], None]], ...] = (
    (stage_programs, _check_programs),
    (rollouts, _check_programs),
    (delays, _check_programs),
    (noise, _check_programs),
    (communicators, _check_communicators),
    (link_owners, _check_communicators),
    (gpu_shares, _check_communicators),
)
"""Each pass with what must hold after it; the finished system is verified as a whole."""


def _system(draft: Draft) -> System:
    """Links, and the SMs and the HBM of every rank, as resources in this order."""
    links, ranks = draft.parts.job.cluster.links, draft.parts.job.parallel.ranks
    rank = np.arange(ranks, dtype=np.int64)
    return System(
        programs=draft.programs,
        program_of=draft.program_of,
        slow=_slow(draft.parts.job),
        communicators=dict(draft.communicators),
        resources=links + 2 * ranks,
        sm=links + rank,
        hbm=links + ranks + rank,
        owner=np.concatenate([draft.owner, rank, rank]),
        outages=outages(draft.parts.job),
    )


# -- what they are made of ---------------------------------------------------------------------------------------


def _used(program: Program) -> set[tuple[Peers, str]]:
    """What the program posts to, with the operation. Equal names are mostly one object, which is cheap to compare."""
    posts: dict[tuple[int, str], tuple[Peers, str]] = {}
    for columns in program.columns.values():
        for template in columns.templates:
            posts |= {(id(i.communicator), i.operation): (i.communicator, i.operation) for i in template.posted.meets}
            posts |= {(id(i.communicator), "message"): (i.communicator, "message") for i in template.posted.sends}
    return set(posts.values())


def _slow(job: Job) -> Floats:
    slow = slow_gpus(job)
    for what in job.what_if:
        if isinstance(what, Slow):
            slow[list(what.ranks)] *= what.factor
    return slow


def _with_gpu_shares(communicator: Communicator, network: Network, group: Group) -> Communicator:
    """The same groups, whose collectives also hold SMs and move bytes through the HBM of every member."""
    patterns = {op: _gpu_shares(p, network, group) for op, p in communicator.patterns.items()}
    return replace(communicator, patterns=patterns)


def _gpu_shares(pattern: Pattern, network: Network, group: Group) -> Pattern:
    members, links, ranks = network.members(group), network.job.cluster.links, network.job.parallel.ranks
    hold, moved = network.gpu_shares(pattern, members, group.queue)
    of, rank = np.repeat(np.arange(len(members), dtype=np.int64), members.shape[1]), members.ravel()
    return replace(
        pattern,
        use_group=np.concatenate([pattern.use_group, of, of]),
        use_resource=np.concatenate([pattern.use_resource, links + rank, links + ranks + rank]),
        use_amount=np.concatenate([pattern.use_amount, hold[of], moved[of]]),
        use_hold=np.concatenate([pattern.use_hold, np.ones(len(of), bool), np.zeros(len(of), bool)]),
    )


def _owners(job: Job, communicators: Mapping[Peers, Communicator]) -> Ints:
    """Per link the rank without whose own post nothing uses it, or -1."""
    owner = job.allocation.rank_of(job.cluster.owner_of).astype(np.int64, copy=True)
    owner[owner >= job.parallel.ranks] = -1
    for communicator in communicators.values():
        posts = communicator.group_of[0]
        for pattern in communicator.patterns.values():
            owners = owner[pattern.use_resource]
            foreign = (owners >= 0) & (posts[np.maximum(owners, 0)] != pattern.use_group)
            owner[pattern.use_resource[foreign]] = -1
    return owner
