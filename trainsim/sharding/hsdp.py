"""FSDP within a node, averages between nodes: ``HYBRID_SHARD`` of FSDP1, a two-dimensional mesh in FSDP2."""

from collections.abc import Iterator
from dataclasses import replace

from trainsim.contracts.job import Job
from trainsim.sharding import strategies
from trainsim.sharding.fsdp import FSDP, hsdp
from trainsim.sharding.replicas import alone, of_a_node, one_group, replicas
from trainsim.sharding.strategy import Derived, Refusal
from trainsim.sharding.strategy_options import SHARD_SIZE


def refuses(job: Job) -> Iterator[Refusal]:
    """What FSDP refuses, and groups of one."""
    yield from FSDP.refuses(job)
    yield from alone(job)


def amounts_to(job: Job) -> str | None:
    """FSDP, where one group has all replicas; experts that fewer ranks hold are parameters of their own there only."""
    return "fsdp" if one_group(job) and not job.model.has_experts else None


def notes(job: Job) -> Iterator[Derived]:
    """What FSDP notes, and one group of all replicas."""
    yield from FSDP.notes(job)
    if one_group(job) and replicas(job) > 1:
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
        amounts_to=amounts_to,
        refuses=refuses,
        notes=notes,
    )
)
