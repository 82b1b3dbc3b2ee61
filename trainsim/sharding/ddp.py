"""Data parallelism without sharding: every replica holds all states and all-reduces its gradients."""

from collections.abc import Sequence

from trainsim.contracts.job import Job
from trainsim.sharding import Exchange, Parts, strategies
from trainsim.sharding.cutting import reductions
from trainsim.sharding.options import REDUCE_BUCKET
from trainsim.sharding.strategy import Strategy


def ddp(job: Job, stage: int, chunks: Sequence[Parts]) -> Exchange:
    """One all-reduce of every gradient per step, in buckets if it overlaps the last backward."""
    return Exchange(
        reductions=tuple(reductions(job, stage, c, p, operation="all_reduce") for c, p in enumerate(chunks)),
        overlapped=job.sharding.overlap,
    )


strategies.register("ddp")(Strategy(plan=ddp, title="DDP", options=(REDUCE_BUCKET,)))
