"""Data parallelism without sharding: every replica holds all states and all-reduces its gradients."""

from collections.abc import Sequence

from trainsim.job import Job
from trainsim.sharding import Exchange, Parts, Strategy, bucket_size, buckets, strategies


def ddp(job: Job, stage: int, chunks: Sequence[Parts]) -> Exchange:
    """One all-reduce of every gradient per step, in buckets if it overlaps the last backward."""
    overlap = job.sharding.overlap
    return Exchange(
        reductions=tuple(
            buckets(
                parts,
                operation="all_reduce",
                bytes_per_element=job.training.gradient_bytes,
                size=bucket_size(job, stage, c, overlap),
            )
            for c, parts in enumerate(chunks)
        ),
        overlapped=overlap,
    )


strategies.register("ddp")(Strategy(plan=ddp, uses=frozenset({"reduce_bucket"})))
