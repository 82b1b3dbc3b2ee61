"""
ZeRO-1: replicas share the optimizer states (Rajbhandari et al. 2020; Megatron's distributed optimizer).

Gradients are reduced as the framework does it (Megatron: reduce-scatter, DeepSpeed: all-reduce of whole buckets);
after the step the updated parameters are gathered in the training precision.
"""

from collections.abc import Iterator, Sequence

from trainsim.contracts.groups import Group
from trainsim.contracts.job import Job
from trainsim.sharding import strategies
from trainsim.sharding.cutting import bucket_size, filled, owned, reductions
from trainsim.sharding.parameter_groups import ParameterGroup, Shards
from trainsim.sharding.plan import Bucket, ShardingPlan, by_readiness, trained
from trainsim.sharding.replicas import across, replicas, within
from trainsim.sharding.strategy import Derived, Refusal, Strategy
from trainsim.sharding.strategy_options import REDUCE_BUCKET, Option

INSTANCES = Option(
    "instances", 1, "degree", "groups that shard optimizer states only among themselves (Megatron-LM's instances)"
)

GATHER_OVERLAP: Option[bool | None] = Option(
    "parameter_gather_overlap",
    None,
    "flag",
    "updated parameters are gathered during the next forward (--overlap-param-gather); default: the framework's",
)


def zero1(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """A reduction of the gradients and a gather of the parameters per step.

    With several instances each shares the states among its own ranks: gradients are reduce-scattered within it, the
    shards summed over all, and parameters gathered within it.
    """
    trained_groups = trained(groups)
    chunks = range(len(groups[0].chunks))
    return ShardingPlan(
        reductions=tuple(
            by_readiness(b for g in trained_groups for b in _reductions(job, stage, c, g)) for c in chunks
        ),
        gathers=tuple(by_readiness(b for g in trained_groups for b in _gathers(job, stage, c, g)) for c in chunks),
        overlapped=job.sharding.overlap,
        gathers_overlapped=gathers_overlapped(job),
        shards={group.name: Shards(optimizer=_size(job, group)) for group in trained_groups},
    )


def gathers_overlapped(job: Job) -> bool:
    """Whether parameters are gathered under the next forward: as the scenario says, else as the framework does where
    gradients overlap."""
    given = GATHER_OVERLAP.of(job)
    return job.sharding.overlap and job.framework.communication.parameter_gather_overlap if given is None else given


def _size(job: Job, group: ParameterGroup) -> int:
    """Ranks that share the states of *group*."""
    return group.replicas // INSTANCES.of(job)


def _within(job: Job, group: ParameterGroup) -> Group:
    """Those ranks."""
    return group.over if INSTANCES.of(job) == 1 else within(job, _size(job, group))


def _has_owners(job: Job) -> bool:
    """Whether each tensor is updated by one of all ranks, and not a part of it by each."""
    return INSTANCES.of(job) == 1 and job.framework.communication.zero1_operation == "reduce"


def _to_owners(job: Job, group: ParameterGroup, chunk: int, per_element: float) -> Iterator[Bucket]:
    """A reduction to each owner, or a broadcast from it: around the ring one way, or the other.

    A bucket of an owner that is not full is sent when the backward is over, and with many owners none is full.
    """
    limit = REDUCE_BUCKET.of(job) or job.framework.communication.bucket_parameters
    end = len(group.chunks[chunk].layers) + 1
    for elements, last in owned(job, group.chunks[chunk], group.replicas):
        after = end if elements < limit else last
        yield Bucket("broadcast", float(elements * per_element), after, group.over, group.name)


def _reductions(job: Job, stage: int, chunk: int, group: ParameterGroup) -> Iterator[Bucket]:
    """Buckets within instances, and their shards over all instances."""
    whole = INSTANCES.of(job) == 1
    if _has_owners(job):
        yield from _to_owners(job, group, chunk, job.training.gradient_bytes)
        return
    operation = job.framework.communication.zero1_operation if whole else "reduce_scatter"
    size = _size(job, group)
    for bucket in reductions(job, stage, chunk, group, operation=operation):
        yield bucket._replace(over=_within(job, group))
        if not whole:
            yield Bucket("all_reduce", bucket.nbytes / size, bucket.after, across(size), group.name)


def _gathers(job: Job, stage: int, chunk: int, group: ParameterGroup) -> Iterator[Bucket]:
    """The updated parameters, cut as Megatron-LM cuts gradients, or all at once."""
    if _has_owners(job):
        yield from _to_owners(job, group, chunk, job.training.stream_bytes)
        return
    cut = job.sharding.overlap and job.framework.communication.bucket_rule == "megatron"
    overlapped = cut or gathers_overlapped(job)
    size = bucket_size(job, stage, chunk, overlapped=overlapped, replicas=group.replicas)
    for elements, after in filled(group.chunks[chunk].parts, size):
        nbytes = elements * job.training.stream_bytes
        yield Bucket("all_gather", nbytes, after, _within(job, group), group.name)


def refuses(job: Job) -> Iterator[Refusal]:
    """What a distributed optimizer does not go together with."""
    if job.experts_apart and INSTANCES.of(job) > 1:
        yield Refusal("instances", "not simulated yet with experts that fewer ranks hold; leave it out")
    if replicas(job) % INSTANCES.of(job):
        yield Refusal("instances", f"{replicas(job)} replicas do not divide into {INSTANCES.of(job)} groups")
    if GATHER_OVERLAP.of(job) and not job.sharding.overlap:
        reason = "Megatron-LM gathers under the next forward only where gradients are reduced under the backward"
        yield Refusal(GATHER_OVERLAP.name, f"{reason}; overlap: true would work, or leave it out")
    if GATHER_OVERLAP.of(job) and job.framework.family == "deepspeed":
        reason = "DeepSpeed gathers all parameters at once after the update"
        yield Refusal(GATHER_OVERLAP.name, f"{reason}; leave it out, or a Megatron profile would do it")


def notes(job: Job) -> Iterator[Derived]:
    """What follows from the framework, and a gather that there is not."""
    given = GATHER_OVERLAP.of(job)
    if given and replicas(job) // INSTANCES.of(job) == 1:
        yield Derived(GATHER_OVERLAP.name, "true", "without effect: optimizer states are not sharded")
    elif given is None and job.sharding.overlap and replicas(job) > 1:
        overlapped = "true" if gathers_overlapped(job) else "false"
        yield Derived(GATHER_OVERLAP.name, overlapped, f"as {job.framework.name} does")


strategies.register("zero1")(
    Strategy(
        plan=zero1,
        title="ZeRO-1",
        experts_apart=True,
        shares=frozenset({"optimizer"}),
        saves_more_than=frozenset({"ddp"}),
        options=(REDUCE_BUCKET, INSTANCES, GATHER_OVERLAP),
        refuses=refuses,
        notes=notes,
    )
)
