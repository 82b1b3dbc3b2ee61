"""Data parallelism without sharding: every replica holds all states and all-reduces its gradients."""

from collections.abc import Sequence

from trainsim.contracts.job import Job
from trainsim.sharding import strategies
from trainsim.sharding.cutting import reductions
from trainsim.sharding.parameter_groups import ParameterGroup
from trainsim.sharding.plan import ShardingPlan, by_readiness, trained
from trainsim.sharding.strategy import Strategy
from trainsim.sharding.strategy_options import REDUCE_BUCKET


def ddp(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """One all-reduce of every gradient per step, in buckets if it overlaps the last backward."""
    chunks = range(len(groups[0].chunks))
    return ShardingPlan(
        reductions=tuple(
            by_readiness(b for g in trained(groups) for b in reductions(job, stage, c, g, operation="all_reduce"))
            for c in chunks
        ),
        overlapped=job.sharding.overlap,
    )


strategies.register("ddp")(Strategy(plan=ddp, title="DDP", experts_apart=True, options=(REDUCE_BUCKET,)))
