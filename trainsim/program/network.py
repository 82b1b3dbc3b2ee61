"""
The groups in which ranks talk, and what it costs them: communicators with the patterns that a program uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np

from trainsim.collectives.offload import offload_pattern
from trainsim.collectives.pattern import instant, latency_only, message_pattern, pattern
from trainsim.contracts.job import Job, Slow
from trainsim.contracts.system import Communicator, Floats, Ints, Pattern
from trainsim.parallel.mesh import Mesh
from trainsim.schedules.lookup import facts

CONTROL = ("control-next", "control-previous")
"""Handshakes between neighbouring stages: they take no time and no link."""
MESSAGES = ("pp-forward", "pp-backward", "pp-forward-reverse", "pp-backward-reverse", *CONTROL)
AXES: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "tp-async": ("tp",),
    "dp": ("cp", "dp"),
    "dp-update": ("cp", "dp"),
    "dp-replicas": ("cp", "dp"),
    "dp-gather": ("cp", "dp"),
    "world": ("tp", "cp", "dp", "pp"),
    "model": ("tp", "pp"),
    "vocabulary": ("pp",),
    "vocabulary-tp": ("tp",),
}
"""Collectives whose groups are the ranks that differ along some axes only; all others join neighbouring stages."""
OFFLOAD = (
    "offload",
    "offload-dp",
    "offload-gather",
    "offload-replicas",
    "offload-step",
    "offload-read",
    "offload-write",
)
"""Copies and host work of single ranks, by the chain that posts them: compute, those beside the passes, a delayed step,
reads and writes of drives that run ahead and behind."""
AXES |= dict.fromkeys(OFFLOAD, ())
REPLICATED = ("dp", "dp-update", "dp-replicas", "dp-gather")
"""Collectives over all that hold the same parameters."""
TINY = ("world", "model")  # carry a few bytes: only their latency counts


class Subgroup(NamedTuple):
    """A part of the groups called ``whole``: ``size`` neighbours each, or those with the same place among them."""

    whole: str
    within: bool
    size: int

    def cut(self, groups: Ints) -> Ints:
        """Members of the parts of *groups* [groups, ranks].

        >>> Subgroup("dp", True, 2).cut(np.arange(4)[None]).tolist()
        [[0, 1], [2, 3]]
        >>> Subgroup("dp", False, 2).cut(np.arange(4)[None]).tolist()
        [[0, 2], [1, 3]]
        """
        blocks = groups.reshape(len(groups), -1, self.size)
        parts: Ints = blocks.reshape(-1, self.size) if self.within else np.swapaxes(blocks, 1, 2)
        return parts.reshape(-1, parts.shape[-1])


@cache
def part_of(name: str) -> Subgroup | None:
    """What *name* says of a part of larger groups, or None.

    >>> part_of("dp-within-8"), part_of("dp")
    (Subgroup(whole='dp', within=True, size=8), None)
    """
    found = re.fullmatch(r"(.+)-(within|across)-(\d+)", name)
    return Subgroup(found[1], found[2] == "within", int(found[3])) if found else None


def mesh_of(job: Job) -> Mesh:
    """How the job's ranks are laid out."""
    degrees = job.parallel
    return Mesh.of(degrees.order, {"tp": degrees.tp, "cp": degrees.cp, "dp": degrees.dp, "pp": degrees.pp})


class Network:
    """Members and patterns of every communicator of a job; patterns are worked out once, when asked for."""

    def __init__(self, job: Job):
        self.job = job
        self.mesh = mesh_of(job)
        self.replicas = facts(job.pipeline.schedule).replicas
        self.bandwidth = link_bandwidth(job)
        self._members: dict[tuple[str, ...], Ints] = {}
        self._patterns: dict[tuple[str | int, str], Pattern] = {}
        self._alone: dict[tuple[str, str], tuple[Pattern, float]] = {}

    def has(self, name: str) -> bool:
        """Whether the communicator has more than one rank."""
        return self.size(name) > 1

    def size(self, name: str) -> int:
        """Ranks per group; 1 when nobody else is there."""
        if part := part_of(name):
            return part.size if part.within else self.size(part.whole) // part.size
        if name not in AXES:
            return min(2, self.mesh.size("pp"))
        return prod(self.mesh.size(axis) for axis in AXES[name]) * (self.replicas if name in REPLICATED else 1)

    def members(self, name: str) -> Ints:
        """Ranks of each group [groups, size]; of a message: sender and receiver."""
        part = part_of(name)
        key = (*AXES[part.whole], str(part.within), str(part.size)) if part else AXES.get(name, (name,))
        if key not in self._members:
            if part:
                self._members[key] = part.cut(self.members(part.whole))
            elif name in REPLICATED:
                self._members[key] = self._replicated(self.mesh.groups(key))
            elif name in AXES:
                self._members[key] = self.mesh.groups(key)
            else:
                self._members[key] = self._neighbours(name, self.mesh.groups("pp"))
        return self._members[key]

    def seconds(self, name: str, operation: str, nbytes: float) -> float:
        """Time of one operation alone on the machine, seconds, as its first group sees it."""
        return self._first(name, operation)[0].seconds(0, nbytes)[0] if self._takes_time(name) else 0.0

    def crowded_seconds(self, name: str, operation: str, nbytes: float) -> float:
        """The same when all groups do it at once: those that share the links of a node get a part of them each."""
        if not self._takes_time(name):
            return 0.0
        pattern, crowd = self._first(name, operation)
        alone, moving = pattern.seconds(0, nbytes)
        return max(alone, crowd * alone * moving)

    def _takes_time(self, name: str) -> bool:
        return self.has(name) or name in OFFLOAD

    def _first(self, name: str, operation: str) -> tuple[Pattern, float]:
        """The pattern of the first group, and how many times over its tightest link is asked for by its like."""
        key = name, operation
        if key not in self._alone:
            sent, healthy = self.job.framework.communication, self.bandwidth is self.job.cluster.bandwidth
            known: dict[object, tuple[Pattern, float]] = self.job.cluster.memo if healthy else {}
            rates = sent.network_efficiency, sent.p2p_efficiency, self.job.algorithm.get(operation, "auto")
            here = name, operation, self.mesh, self.replicas, self.job.pipeline.chunks > 1, rates
            if here not in known:
                known[here] = self._alone_pattern(name, operation)
            self._alone[key] = known[here]
        return self._alone[key]

    def _alone_pattern(self, name: str, operation: str) -> tuple[Pattern, float]:
        pattern = self._pattern(name, operation, self._near(name))
        shared = np.bincount(pattern.use_resource, pattern.use_amount)
        mine = pattern.use_resource[pattern.use_group == 0]
        return pattern, max(1.0, float(shared[mine].max(initial=1.0)))

    def _near(self, name: str) -> Ints:
        """The first group of a communicator, and the others that start in the same node."""
        if part := part_of(name):
            return part.cut(self._near(part.whole))
        axes = AXES.get(name, ("pp",))
        ranks = np.arange(min(self.job.cluster.gpus_per_node, self.mesh.ranks), dtype=np.int64)
        coordinates = self.mesh.coordinates(ranks)
        inside = sum(coordinates[axis] * self.mesh.stride(axis) for axis in axes if axis in coordinates)
        groups = np.unique(ranks - inside)[:, None] + self.mesh.first_group(axes)
        if name in REPLICATED:
            return self._replicated(groups)
        if name in AXES:
            return groups
        pairs = self._neighbours(name, groups)
        return pairs[np.isin(pairs[:, 0], pairs[0, 0] + ranks)]

    def _replicated(self, groups: Ints) -> Ints:
        """Groups of replicas; in a two-way pipeline a rank and its mirror image hold the same stages."""
        if self.replicas == 1:
            return groups
        stage, stages = self.mesh.coordinates(groups[:, 0])["pp"], self.mesh.size("pp")
        mirror = groups + ((stages - 1 - 2 * stage) * self.mesh.stride("pp"))[:, None]
        return np.sort(np.concatenate([groups, mirror], axis=1), axis=1)[2 * stage < stages]

    def _neighbours(self, name: str, pipelines: Ints) -> Ints:
        """Pairs of pipeline ranks: the ends (tied embeddings; ``embedding-2``: the first and rank 2), or sender and
        receiver of messages."""
        if name.startswith("embedding"):
            return pipelines[:, [0, int(name.partition("-")[2] or -1)]]
        after = np.roll(pipelines, -1, axis=1)
        last = pipelines.shape[1] - (0 if self.job.pipeline.chunks > 1 else 1)  # chunks wrap around
        pairs = np.stack([pipelines[:, :last].ravel(), after[:, :last].ravel()], axis=1)
        return pairs if name in ("pp-forward", "pp-backward-reverse", "control-next") else pairs[:, ::-1]

    def pattern(self, name: str, operation: str) -> Pattern:
        """How *operation* moves bytes over all groups of the communicator; on links that can bind."""
        # The same ranks under two names have one pattern, unless the name is that of messages or of tiny collectives.
        key = (name if name in MESSAGES + TINY else id(self.members(name))), operation
        if key not in self._patterns:
            pattern = self._pattern(name, operation, self.members(name))
            # Links count as binding by the ways of collectives alone: what else is on the way may be broken, or shared.
            usual = self.bandwidth is self.job.cluster.bandwidth and not self.job.sharding.offload.any
            self._patterns[key] = pattern.only(self.job.cluster.binding[pattern.use_resource]) if usual else pattern
        return self._patterns[key]

    def communicators(self, used: Iterable[tuple[str, str]]) -> dict[str, Communicator]:
        """Communicators with the operations that the programs use, ready for the engine."""
        operations: dict[str, list[str]] = {}
        for name, operation in used:
            operations.setdefault(name, []).append(operation)
        return {name: self._communicator(name, sorted(ops)) for name, ops in sorted(operations.items())}

    def _communicator(self, name: str, operations: list[str]) -> Communicator:
        members = self.members(name)
        groups = np.arange(len(members), dtype=np.int64)
        columns = members.T if name in MESSAGES else members.reshape(1, -1)
        labels = groups if name in MESSAGES else np.repeat(groups, members.shape[1])
        group_of = []
        for column in columns:
            of = np.full(self.job.parallel.ranks, -1, np.int64)
            of[column] = labels
            group_of.append(of)
        patterns = {operation: self.pattern(name, operation) for operation in operations}
        return Communicator(group_of=tuple(group_of), groups=len(members), patterns=patterns)

    def _pattern(self, name: str, operation: str, members: Ints) -> Pattern:
        job, framework = self.job, self.job.framework
        if name in CONTROL:
            return instant(len(members))
        if name in OFFLOAD:
            return offload_pattern(job.cluster, operation, members[:, 0], bandwidth=self.bandwidth)
        if name in MESSAGES:
            return message_pattern(
                job.cluster,
                members[:, 0],
                members[:, 1],
                efficiency=framework.communication.p2p_efficiency,
                bandwidth=self.bandwidth,
            )
        if name in TINY:
            return latency_only(job.cluster, operation, members)
        return pattern(
            job.cluster,
            operation,
            members,
            algorithm=job.algorithm.get(operation, "auto"),
            network_efficiency=framework.communication.network_efficiency,
            bandwidth=self.bandwidth,
        )


def link_bandwidth(job: Job) -> Floats:
    """Bytes/s of every link, with what is slow in this job's ``what_if``."""
    factors: Mapping[str, float] = {
        link: slow.factor for slow in job.what_if if isinstance(slow, Slow) for link in slow.links
    }
    if not factors:
        return job.cluster.bandwidth
    bandwidth = job.cluster.bandwidth.copy()
    for link, factor in factors.items():
        bandwidth[job.cluster.find_links(link)] *= factor
    return bandwidth
