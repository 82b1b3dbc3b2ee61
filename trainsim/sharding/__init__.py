"""
What replicas exchange, and when: one file per strategy.

A strategy is a pure function of a job and the parameters of one rank's chunks. It gives the reductions of each
chunk's gradients, the gathers of its parameters, and how many ranks share the optimizer's states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainsim.contracts.groups import REPLICAS, Across, Group, Within
from trainsim.contracts.job import Job
from trainsim.registry import Registry
from trainsim.sharding.flights import Plan
from trainsim.sharding.options import REDUCE_BUCKET, SHARD_SIZE
from trainsim.sharding.strategy import Derived, Refusal, Strategy


class Parts(NamedTuple):
    """Parameters of one chunk on one rank, in the order in which its gradients are ready: head, layers, embedding."""

    head: int
    layers: tuple[int, ...]
    embedding: int

    @property
    def total(self) -> int:
        return self.head + sum(self.layers) + self.embedding


class Bucket(NamedTuple):
    """One collective: ``nbytes`` of the full buffer, ready after ``after`` layers of the chunk's last backward.

    ``after`` = layers + 1 means: after the embedding's gradient. ``over`` are the replicas that meet: all, or a part.
    """

    operation: str
    nbytes: float
    after: int
    over: Group = REPLICAS


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What one rank sends for data parallelism in a step: ``reductions[chunk]`` and ``gathers[chunk]``, once, and
    ``beside`` every pass what its plan says. ``norms`` are the bytes of the sums that ranks agree on before an update.

    ``shard`` is the number of ranks that share the optimizer states, ``weights_shard`` and ``gradients_shard`` of those
    that share parameters and gradients between passes. ``extra`` are bytes by category that it holds all the time
    beside these states.
    """

    reductions: tuple[tuple[Bucket, ...], ...]
    gathers: tuple[tuple[Bucket, ...], ...] = ()
    overlapped: bool = False
    gathers_overlapped: bool = False
    shard: int = 1
    weights_shard: int = 1
    gradients_shard: int = 1
    norms: tuple[float, ...] = (4.0,)
    beside: Plan = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)


strategies: Registry[Strategy] = Registry("strategy", __name__)


def alone(job: Job) -> Iterator[Refusal]:
    """A complaint about groups of one replica, which share nothing with anybody."""
    if SHARD_SIZE.of(job) == 1 and replicas(job) > 1:
        yield Refusal(
            "shard_size",
            f"groups of one replica share nothing; write how many of the {replicas(job)} replicas share their states",
        )


def of_a_node(given: Mapping[str, Any], node: int) -> Iterator[Derived]:
    """Groups of the size of a node, where the scenario does not say."""
    if given.get("shard_size") is None:
        yield Derived("shard_size", node, "replicas of a node")


def replicas(job: Job) -> int:
    """Ranks that hold the same parameters."""
    return job.parallel.dp * job.parallel.cp


def group(job: Job) -> int:
    """Replicas that share parameters where not all of them do."""
    return SHARD_SIZE.of(job) or replicas(job)


def within(job: Job, size: int) -> Group:
    """*size* neighbouring replicas, which may be all."""
    return REPLICAS.only(Within(size)) if size != replicas(job) else REPLICAS


def across(size: int) -> Group:
    """The replicas that have the same place among their *size* neighbours."""
    return REPLICAS.only(Across(size)) if size != 1 else REPLICAS


def buckets(parts: Parts, *, operation: str, bytes_per_element: float, size: float | None) -> tuple[Bucket, ...]:
    """Cut a chunk's gradients into buckets that close as soon as they hold *size* elements; None: one bucket.

    >>> [b.after for b in buckets(Parts(0, (10, 10, 10), 5), operation="all_reduce", bytes_per_element=2, size=20)]
    [2, 4]
    """
    out, held = [], 0
    sizes = [parts.head, *parts.layers, parts.embedding]
    for k, elements in enumerate(sizes):
        held += elements
        last = k == len(sizes) - 1
        if held and (last or (size is not None and held >= size)):
            out.append(Bucket(operation, held * bytes_per_element, k))
            held = 0
    return tuple(out)


def bucket_size(job: Job, stage: int, chunk: int, overlapped: bool) -> float | None:
    """Elements per bucket of a chunk on pipeline rank *stage*, or None for a single bucket.

    Megatron-LM splits only the first chunk of the first stage: the others reduce when their backwards are over.
    """
    framework = job.framework
    split = framework.communication.bucketed_stages == "all" or (stage == 0 and chunk == 0)
    if not overlapped or not split:
        return None
    return REDUCE_BUCKET.of(job) or max(
        framework.communication.bucket_parameters, framework.communication.bucket_parameters_per_rank * replicas(job)
    )
