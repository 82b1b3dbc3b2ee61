"""
ZeRO-1: replicas share the optimizer states (Rajbhandari et al. 2020; Megatron's distributed optimizer).

Gradients are reduced as the framework does it (Megatron: reduce-scatter, DeepSpeed: all-reduce of whole buckets);
after the step the updated parameters are gathered in the training precision.
"""

from collections.abc import Iterator, Sequence

from trainsim.contracts.job import Job
from trainsim.sharding import (
    Bucket,
    Exchange,
    Parts,
    across,
    bucket_size,
    buckets,
    replicas,
    strategies,
    within,
)
from trainsim.sharding.cutting import reductions
from trainsim.sharding.options import REDUCE_BUCKET, Option
from trainsim.sharding.strategy import Refusal, Strategy

INSTANCES = Option(
    "instances", 1, "degree", "groups that share optimizer states among themselves only (Megatron-LM's instances)"
)


def zero1(job: Job, stage: int, chunks: Sequence[Parts]) -> Exchange:
    """A reduction of the gradients and a gather of the parameters per step.

    With several instances each shares the states among its own ranks: gradients are reduce-scattered within it, the
    shards summed over all, and parameters gathered within it.
    """
    overlap = job.sharding.overlap
    gather_overlap = overlap and job.framework.communication.parameter_gather_overlap
    size = replicas(job) // INSTANCES.of(job)
    operation = job.framework.communication.zero1_operation if INSTANCES.of(job) == 1 else "reduce_scatter"
    reduced = (reductions(job, stage, c, parts, operation=operation) for c, parts in enumerate(chunks))
    gathered = (_gathers(job, parts, bucket_size(job, stage, c, gather_overlap)) for c, parts in enumerate(chunks))
    return Exchange(
        reductions=tuple(tuple(_over_instances(job, size, chunk)) for chunk in reduced),
        gathers=tuple(tuple(b._replace(over=within(job, size)) for b in chunk) for chunk in gathered),
        overlapped=overlap,
        gathers_overlapped=gather_overlap,
        shard=size,
    )


def _gathers(job: Job, parts: Parts, size: float | None) -> tuple[Bucket, ...]:
    per_element = job.training.number_bytes
    return buckets(parts, operation="all_gather", bytes_per_element=per_element, size=size)


def _over_instances(job: Job, size: int, some: Sequence[Bucket]) -> Iterator[Bucket]:
    """*some* buckets within instances of *size* replicas, and their shards over all instances."""
    for bucket in some:
        yield bucket._replace(over=within(job, size))
        if size < replicas(job):
            yield Bucket("all_reduce", bucket.nbytes / size, bucket.after, across(size))


def refuses(job: Job) -> Iterator[Refusal]:
    """What a distributed optimizer does not go together with."""
    if replicas(job) % INSTANCES.of(job):
        yield Refusal("instances", f"{replicas(job)} replicas do not divide into {INSTANCES.of(job)} groups")


strategies.register("zero1")(
    Strategy(
        plan=zero1,
        title="ZeRO-1",
        shares=frozenset({"optimizer"}),
        saves_more_than=frozenset({"ddp"}),
        options=(REDUCE_BUCKET, INSTANCES),
        refuses=refuses,
    )
)
