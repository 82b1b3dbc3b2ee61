"""
MiCS: ZeRO-3 within groups of replicas; the groups sum their gradients once, at the end of the step.

Source: Zhang et al. 2022 (arXiv 2205.00119) and deepspeedai/DeepSpeed 0.19, deepspeed/runtime/zero/mics.py.
"""

from collections.abc import Iterator, Sequence

from trainsim.contracts.job import Job
from trainsim.sharding import strategies, zero2
from trainsim.sharding.parameter_groups import ParameterGroup
from trainsim.sharding.plan import ShardingPlan
from trainsim.sharding.replicas import alone, of_a_node, replicas, sharing
from trainsim.sharding.strategy import STATES, Derived, Refusal, Strategy
from trainsim.sharding.strategy_options import SHARD_SIZE
from trainsim.sharding.zero3 import OPTIONS, partitioned


def mics(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """States shared by ``shard_size`` replicas."""
    return partitioned(job, groups, sharing(job))


def refuses(job: Job) -> Iterator[Refusal]:
    """What ZeRO-2 refuses, and groups of one."""
    yield from zero2.refuses(job)
    yield from alone(job)


def notes(job: Job) -> Iterator[Derived]:
    """One group of all replicas."""
    if SHARD_SIZE.of(job) == replicas(job) > 1:
        yield Derived(SHARD_SIZE.name, replicas(job), "all replicas, so that nothing differs from zero3")


strategies.register("mics")(
    Strategy(
        plan=mics,
        title="MiCS",
        shares=frozenset(STATES),
        every_pass=True,
        options=(*OPTIONS, SHARD_SIZE),
        brings=of_a_node,
        offloads=frozenset(),
        framework="deepspeed",
        summed_by=sharing,
        refuses=refuses,
        notes=notes,
    )
)
