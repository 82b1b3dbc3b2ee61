"""Replicas of a job, and the parts of them that share something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainsim.contracts.groups import REPLICAS, Across, Group, Within
from trainsim.contracts.job import Job
from trainsim.sharding.strategy import Derived, Refusal
from trainsim.sharding.strategy_options import SHARD_SIZE


def replicas(job: Job) -> int:
    """Ranks that hold the same parameters."""
    return job.parallel.dp * job.parallel.cp


def sharing(job: Job) -> int:
    """Replicas that share parameters where not all of them do."""
    return SHARD_SIZE.of(job) or replicas(job)


def one_group(job: Job) -> bool:
    """Whether all replicas are in one group of those that share states."""
    return SHARD_SIZE.of(job) == replicas(job)


def within(job: Job, size: int) -> Group:
    """*size* neighbouring replicas, which may be all."""
    return REPLICAS.only(Within(size)) if size != replicas(job) else REPLICAS


def across(size: int) -> Group:
    """The replicas that have the same place among their *size* neighbours."""
    return REPLICAS.only(Across(size)) if size != 1 else REPLICAS


def of_a_node(given: Mapping[str, Any], node: int) -> Iterator[Derived]:
    """Groups of the size of a node, where the scenario does not say."""
    if given.get("shard_size") is None:
        yield Derived("shard_size", node, "replicas of a node")


def alone(job: Job) -> Iterator[Refusal]:
    """A complaint about groups of one replica, which share nothing with anybody."""
    if SHARD_SIZE.of(job) == 1 and replicas(job) > 1:
        yield Refusal(
            "shard_size",
            f"groups of one replica shard nothing; write how many of the {replicas(job)} replicas share their states",
        )
