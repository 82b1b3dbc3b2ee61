"""FSDP within a node, averages between nodes: ``HYBRID_SHARD`` of FSDP1, a two-dimensional mesh in FSDP2."""

from collections.abc import Iterator
from dataclasses import replace

from trainsim.contracts.job import Job
from trainsim.sharding import strategies
from trainsim.sharding.fsdp import FSDP, hsdp
from trainsim.sharding.replicas import alone, of_a_node, replicas
from trainsim.sharding.strategy import Derived, Refusal
from trainsim.sharding.strategy_options import SHARD_SIZE


def refuses(job: Job) -> Iterator[Refusal]:
    """What FSDP refuses, and groups of one."""
    yield from FSDP.refuses(job)
    yield from alone(job)


def notes(job: Job) -> Iterator[Derived]:
    """What FSDP notes, and one group of all replicas."""
    yield from FSDP.notes(job)
    if SHARD_SIZE.of(job) == replicas(job) > 1:
        yield Derived(SHARD_SIZE.name, replicas(job), "all replicas, so that nothing differs from fsdp")


strategies.register("hsdp")(
    replace(
        FSDP,
        plan=hsdp,
        title="HSDP",
        experts_apart=False,
        saves_more_than=frozenset(),
        options=(*FSDP.options, SHARD_SIZE),
        brings=of_a_node,
        refuses=refuses,
        notes=notes,
    )
)
