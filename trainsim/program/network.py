"""
The groups in which ranks talk, and what it costs them: communicators with the patterns that a program uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from math import prod

import numpy as np

from trainsim.collectives import PlacedGroups, algorithms
from trainsim.collectives.host_copies import offload_pattern
from trainsim.collectives.pattern import latency_only, message_pattern, pattern
from trainsim.collectives.place import place
from trainsim.collectives.traffic import instant
from trainsim.contracts.groups import EXPERT_AXES, Group, Messages, Peers, Queue
from trainsim.contracts.job import Job, Slow
from trainsim.contracts.system import Bools, Communicator, Floats, Ints, Pattern
from trainsim.hardware.naming import links_of_network
from trainsim.parallel.mesh import Mesh
from trainsim.program.jitter import kept_of_links
from trainsim.program.outages import outages
from trainsim.schedules.lookup import facts

FEW, MOST_KEPT = 1024, 256
"""Ranks of a job whose communicators are kept for the next one, and how many of them."""


def mesh_of(job: Job) -> Mesh:
    """How the job's ranks are laid out."""
    degrees = job.parallel
    return Mesh.of(degrees.order, {"tp": degrees.tp, "cp": degrees.cp, "dp": degrees.dp, "pp": degrees.pp})


def expert_mesh_of(job: Job) -> Mesh:
    """How the same ranks are laid out where experts are."""
    degrees = job.parallel
    sizes = {"etp": degrees.etp, "ep": degrees.ep, "edp": degrees.edp, "pp": degrees.pp}
    return Mesh.of_experts(degrees.order, sizes)


class Network:
    """Members and patterns of every communicator of a job; patterns are worked out once, when asked for."""

    def __init__(self, job: Job):
        self.job = job
        self.mesh = mesh_of(job)
        self.expert_mesh = expert_mesh_of(job)
        self.replicas = facts(job.pipeline.schedule).replicas
        self.bandwidth = link_bandwidth(job)
        self.gpu_of = job.allocation.gpu_of
        self._sizes: dict[Peers, int] = {}
        self._members: dict[Peers, Ints] = {}
        self._placed: dict[Group, tuple[Ints, PlacedGroups]] = {}  # while communicators are made
        self._patterns: dict[tuple[Peers, str], Pattern] = {}
        self._beside_kernels: dict[tuple[Peers, str], tuple[float, float]] = {}
        self._alone: dict[tuple[Peers, str], tuple[Pattern, float]] = {}

    def has(self, peers: Peers) -> bool:
        """Whether a rank has anybody to talk to there."""
        return self.size(peers) > 1

    def size(self, peers: Peers) -> int:
        """Ranks per group; 1 when nobody else is there."""
        if peers not in self._sizes:
            self._sizes[peers] = self._size(peers)
        return self._sizes[peers]

    def _size(self, peers: Peers) -> int:
        if isinstance(peers, Messages):
            return min(2, peers.engine[1] if peers.engine else self.mesh.size("pp"))
        mesh = self.mesh_for(peers)
        ranks = prod(mesh.size(axis) for axis in peers.axes) * (self.replicas if peers.replicates else 1)
        return peers.part.of(ranks) if peers.part else ranks

    def mesh_for(self, group: Group) -> Mesh:
        """The mesh that has the axes of *group*."""
        return self.expert_mesh if set(group.axes) & set(EXPERT_AXES) else self.mesh

    def members(self, peers: Peers) -> Ints:
        """Ranks of each group [groups, size]; of a message: sender and receiver."""
        key = peers.anywhere
        if key not in self._members:
            if isinstance(key, Messages):
                self._members[key] = self._engines(key) if key.engine else self._neighbours(key, self.mesh.groups("pp"))
            elif key.part:
                self._members[key] = key.part.cut(self.members(key.whole))
            else:
                self._members[key] = self._replicated(key, self.mesh_for(key).groups(key.axes))
        return self._members[key]

    def hops(self, peers: Peers) -> int:
        """In how many domains beyond one (nodes, or racks of one NVLink) the ranks of its first group are."""
        return len(np.unique(self.job.cluster.domain_of(self.gpu_of(self.members(peers)[0])))) - 1

    def seconds(self, peers: Peers, operation: str, nbytes: float) -> float:
        """Time of one operation alone on the machine, seconds, as its first group sees it."""
        return self._first(peers, operation)[0].seconds(0, nbytes)[0] if self._takes_time(peers) else 0.0

    def crowded_seconds(self, peers: Peers, operation: str, nbytes: float) -> float:
        """The same when all groups do it at once: those that share the links of a node get a part of them each."""
        if not self._takes_time(peers):
            return 0.0
        pattern, crowd = self._first(peers, operation)
        alone, moving = pattern.seconds(0, nbytes)
        return max(alone, crowd * alone * moving)

    def taken_beside(self, group: Group, operation: str) -> tuple[float, float]:
        """(Share of the SMs, share of the bandwidth of the HBM) that a collective takes of the GPUs of its first group
        when it runs beside kernels."""
        key = group, operation
        if key not in self._beside_kernels:
            near = self._near(group.anywhere)[:1]
            hold, moved = self.gpu_shares(self._first(group, operation)[0], near, group.queue)
            self._beside_kernels[key] = float(hold[0]), float(moved[0])
        return self._beside_kernels[key]

    def gpu_shares(self, pattern: Pattern, members: Ints, queue: Queue) -> tuple[Floats, Floats]:
        """What a collective takes of each of its GPUs, group by group of *members*.

        NCCL's blocks hold their SMs however slow the network is, those of copy engines none; and every byte on the wire
        is read and written.
        """
        cluster, constants = self.job.cluster, self.job.cluster.constants
        domains = np.sort(cluster.domain_of(self.gpu_of(members)), axis=1)
        near = np.any(domains[:, 1:] == domains[:, :-1], axis=1)  # two members of a node: their channels use NVLink too
        hold = np.where(near, constants["sm_nvlink"], constants["sm_network"]) * (queue is not Queue.COPIES)
        bandwidth = pattern.bandwidth[: len(members)]
        return hold, np.minimum(1.0, constants["hbm_passes"] * bandwidth / cluster.gpu.memory_bandwidth)

    def _takes_time(self, peers: Peers) -> bool:
        return self.has(peers) or (isinstance(peers, Group) and peers.alone)

    def _first(self, peers: Peers, operation: str) -> tuple[Pattern, float]:
        """The pattern of the first group, and how many times over its tightest link is asked for by its like."""
        key = peers.anywhere, operation
        if key not in self._alone:
            known: dict[object, tuple[Pattern, float]] = self.job.cluster.memo if self._healthy else {}
            here = key, self._layout, self.job.algorithm.get(operation, "auto")
            if here not in known:
                known[here] = self._alone_pattern(*key)
            self._alone[key] = known[here]
        return self._alone[key]

    @cached_property
    def _healthy(self) -> bool:
        """Whether every link reaches what it usually does."""
        return self.bandwidth is self.job.cluster.bandwidth

    @cached_property
    def _binding(self) -> Bools:
        """Links that can be the tightest of a way, or are for a while."""
        down = [outage.resource for outage in outages(self.job)]
        if not down:
            return self.job.cluster.binding
        binding = self.job.cluster.binding.copy()
        binding[down] = True
        return binding

    @cached_property
    def _layout(self) -> tuple[object, ...]:
        """What patterns depend on, machine and algorithms aside: jobs that have it in common have the same ones."""
        sent = self.job.framework.communication
        rates, chunked = (sent.network_efficiency, sent.p2p_efficiency), self.job.pipeline.chunks > 1
        return (
            self.mesh,
            self.expert_mesh,
            self.job.allocation,
            self.replicas,
            chunked,
            rates,
            tuple(algorithms.values()),
        )

    def _alone_pattern(self, peers: Peers, operation: str) -> tuple[Pattern, float]:
        pattern = self.on_every_link(peers, operation, self._near(peers))
        shared = np.bincount(pattern.use_resource, pattern.use_amount)
        first_resources = pattern.use_resource[pattern.use_group == 0]
        return pattern, max(1.0, float(shared[first_resources].max(initial=1.0)))

    def _near(self, peers: Peers) -> Ints:
        """The first group of a communicator, and the others that start in the same node."""
        if isinstance(peers, Group) and peers.part:
            return peers.part.cut(self._near(peers.whole))
        if isinstance(peers, Messages) and peers.engine:
            pairs = self._engines(peers)
            return pairs[np.isin(pairs[:, 0], self._beside(pairs[:1, 0]))]
        axes, mesh = (("pp",), self.mesh) if isinstance(peers, Messages) else (peers.axes, self.mesh_for(peers))
        ranks = self._beside(np.zeros(1, np.int64))
        coordinates = mesh.coordinates(ranks)
        inside = sum(coordinates[axis] * mesh.stride(axis) for axis in axes if axis in coordinates)
        groups = np.unique(ranks - inside)[:, None] + mesh.first_group(axes)
        if isinstance(peers, Group):
            return self._replicated(peers, groups)
        pairs = self._neighbours(peers, groups)
        return pairs[np.isin(pairs[:, 0], self._beside(pairs[:1, 0]))]

    def _beside(self, rank: Ints) -> Ints:
        """The ranks on as many GPUs as a node has, from that of *rank* on."""
        first = int(self.gpu_of(rank)[0])
        gpus = np.arange(first, first + self.job.cluster.gpus_per_node, dtype=np.int64)
        ranks = self.job.allocation.rank_of(gpus)
        return ranks[(ranks >= 0) & (ranks < self.mesh.ranks)]

    def _replicated(self, group: Group, groups: Ints) -> Ints:
        """*groups* as they are; but in a two-way pipeline a rank and its mirror image hold the same stages."""
        if self.replicas == 1 or not group.replicates:
            return groups
        stage, stages = self.mesh.coordinates(groups[:, 0])["pp"], self.mesh.size("pp")
        mirror = groups + ((stages - 1 - 2 * stage) * self.mesh.stride("pp"))[:, None]
        return np.sort(np.concatenate([groups, mirror], axis=1), axis=1)[2 * stage < stages]

    def _engines(self, messages: Messages) -> Ints:
        """Pairs of neighbouring ranks of inference engines: the last stage sends to the first."""
        assert messages.engine is not None
        tp, pp = messages.engine
        stages = np.arange(self.mesh.ranks, dtype=np.int64).reshape(-1, pp, tp)
        return np.stack([stages.ravel(), np.roll(stages, -messages.distance, axis=1).ravel()], axis=1)

    def _neighbours(self, messages: Messages, pipelines: Ints) -> Ints:
        """Pairs of neighbouring pipeline ranks: sender and receiver."""
        after = np.roll(pipelines, -1, axis=1)
        last = pipelines.shape[1] - (0 if self.job.pipeline.chunks > 1 else 1)  # chunks wrap around
        pairs = np.stack([pipelines[:, :last].ravel(), after[:, :last].ravel()], axis=1)
        return pairs if messages.distance > 0 else pairs[:, ::-1]

    def pattern(self, peers: Peers, operation: str) -> Pattern:
        """How *operation* moves bytes over all groups of the communicator; on links that can bind."""
        key = peers.anywhere, operation  # whichever queue posts it
        if key not in self._patterns:
            pattern = self.on_every_link(*key, self.members(peers))
            # Links count as binding by the ways of collectives alone: what else is on the way may be broken, or shared.
            usual = self._healthy and not self.job.uses_host
            self._patterns[key] = pattern.only(self._binding[pattern.use_resource]) if usual else pattern
        return self._patterns[key]

    def communicators(self, used: Iterable[tuple[Peers, str]]) -> dict[Peers, Communicator]:
        """Communicators with the operations that the programs use, ready for the engine."""
        operations: dict[Peers, set[str]] = {}
        for peers, operation in used:
            operations.setdefault(peers, set()).add(operation)
        made = {peers: self._kept(peers, tuple(sorted(operations[peers]))) for peers in sorted(operations, key=str)}
        self._placed.clear()
        return made

    def _kept(self, peers: Peers, operations: tuple[str, ...]) -> Communicator:
        """A communicator, the same one for all jobs of few ranks that have their layout in common: a sweep has many."""
        if not self._healthy or self.mesh.ranks > FEW or outages(self.job):
            return self._communicator(peers, operations)
        kept: dict[object, Communicator] = self.job.cluster.memo.setdefault("communicators", {})
        chosen = tuple(self.job.algorithm.get(operation, "auto") for operation in operations)
        key = peers, operations, chosen, self._layout, self.job.uses_host
        if key not in kept:
            while len(kept) >= MOST_KEPT:
                del kept[next(iter(kept))]
            kept[key] = self._communicator(peers, operations)
        return kept[key]

    def _communicator(self, peers: Peers, operations: Iterable[str]) -> Communicator:
        members, is_message = self.members(peers), isinstance(peers, Messages)
        groups = np.arange(len(members), dtype=np.int64)
        columns = members.T if is_message else members.reshape(1, -1)
        labels = groups if is_message else np.repeat(groups, members.shape[1])
        group_of = []
        for column in columns:
            of = np.full(self.job.parallel.ranks, -1, np.int64)
            of[column] = labels
            group_of.append(of)
        patterns = {operation: self.pattern(peers, operation) for operation in operations}
        return Communicator(group_of=tuple(group_of), groups=len(members), patterns=patterns)

    def on_every_link(self, peers: Peers, operation: str, members: Ints) -> Pattern:
        """*operation* over groups of ranks, as their GPUs carry it out, on all links: also those that never bind."""
        job, sent, members = self.job, self.job.framework.communication, self.gpu_of(members)
        if isinstance(peers, Messages):
            if peers.carries == "control":
                return instant(len(members))
            return message_pattern(
                job.cluster,
                members[:, 0],
                members[:, 1],
                efficiency=sent.p2p_efficiency,
                bandwidth=self.bandwidth,
            )
        if peers.alone:
            return offload_pattern(job.cluster, operation, members[:, 0], bandwidth=self.bandwidth)
        if peers.latency_only:
            return latency_only(job.cluster, operation, members)
        return pattern(
            job.cluster,
            operation,
            self._place(peers, members),
            algorithm=job.algorithm.get(operation, "auto"),
            network_efficiency=sent.p2p_efficiency if operation == "shift" else sent.network_efficiency,
            bandwidth=self.bandwidth,
        )

    def _place(self, group: Group, members: Ints) -> PlacedGroups:
        """Where *members* lie; all groups of a communicator are placed once for all of their operations."""
        before = self._placed.get(group)
        if before is None or before[0] is not members:
            before = self._placed[group] = members, place(self.job.cluster, members)
        return before[1]


def link_bandwidth(job: Job) -> Floats:
    """Bytes/s of every link, with what others take, what is slow in this job's ``what_if``, or drawn to be."""
    factors: Mapping[str, float] = {
        link: slow.factor for slow in job.what_if if isinstance(slow, Slow) for link in slow.links
    }
    if not factors and not job.jitter.network and job.background is None:
        return job.cluster.bandwidth
    bandwidth = job.cluster.bandwidth.copy()
    if job.background is not None:
        bandwidth[links_of_network(job.cluster, job.background.on)] *= 1.0 - job.background.load
    for link, factor in factors.items():
        bandwidth[job.cluster.find_links(link)] *= factor
    return bandwidth * kept_of_links(job)
