"""
PyTorch FSDP: every unit (a transformer block; the rest is the root) is sharded, gathered for its passes and given back.

FSDP1 gathers straight into the flat parameter, at most two units ahead of what frees them; FSDP2 gathers into a buffer
and copies out, and its compute stream waits for one reduce-scatter before it feeds the next. Gathers and
reduce-scatters share one communicator, so none overlaps another. Megatron-FSDP gathers into the parameters too, and its
weight gradients are made in the buffer that is reduced, so that nothing is copied. In a pipeline parameters stay whole
after their first forward, and gradients are reduced in one burst after the last backward. Source: torch 2.13,
``torch/distributed/fsdp`` (FSDP1), ``torch/distributed/fsdp/_fully_shard`` (FSDP2) and
``torch/distributed/pipelining/stage.py``; Megatron-LM, ``megatron/core/distributed/fsdp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainsim.contracts.groups import REPLICAS, Group
from trainsim.contracts.job import Job
from trainsim.sharding import strategies
from trainsim.sharding.flights import in_turn, roles
from trainsim.sharding.fsdp_options import (
    BACKWARD_PREFETCH,
    FORWARD_PREFETCH,
    GATHER_DTYPE,
    OPTIONS,
    SYNC,
    gathered_bytes,
    reshard,
)
from trainsim.sharding.fsdp_passes import UnitPass
from trainsim.sharding.fsdp_units import fresh_shards
from trainsim.sharding.fsdp_words import notes, unknown_to_software, wrong_gathers
from trainsim.sharding.parameter_groups import ParameterGroup, Shards
from trainsim.sharding.plan import Bucket, ShardingPlan, by_readiness
from trainsim.sharding.replicas import across, replicas, sharing, within
from trainsim.sharding.strategy import STATES, Refusal, Strategy


def fsdp(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """Shards over all replicas."""
    return sharded(job, groups, size=replicas(job))


def hsdp(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """Shards within groups of ``shard_size`` replicas; gradients are then averaged over the groups."""
    return sharded(job, groups, size=sharing(job))


def sharded(job: Job, groups: Sequence[ParameterGroup], *, size: int) -> ShardingPlan:
    """The exchange of units that *size* replicas share."""
    if job.parallel.pp > 1:
        sharding = _in_pipeline(job, groups, size)
    else:
        fresh = fresh_shards(job, (group.total / _size(job, group, size) for group in groups if group.trained))
        plan = {role: UnitPass(job, size, role, fresh).beside() for role in roles()}
        if not job.sharding.overlap:
            plan = {role: in_turn(beside) for role, beside in plan.items()}
        sharding = ShardingPlan(reductions=((),), flights=plan, fresh=fresh)
    return replace(sharding, shards={group.name: Shards.of_all(_size(job, group, size)) for group in groups})


def _size(job: Job, group: ParameterGroup, size: int) -> int:
    """Ranks that share the states of *group*, where *size* replicas share those of all layers."""
    return size if group.over == REPLICAS else group.replicas


def _in_pipeline(job: Job, groups: Sequence[ParameterGroup], size: int) -> ShardingPlan:
    """Parameters and gradients are whole from the first pass to the last."""
    held, chunks = sum(group.total for group in groups), range(len(groups[0].chunks))
    return ShardingPlan(
        reductions=tuple(by_readiness(b for g in groups for b in _burst(job, g, c, size)) for c in chunks),
        gathers=tuple(by_readiness(b for g in groups for b in _once(job, g, c, size)) for c in chunks),
        gathers_overlapped=job.sharding.overlap,
        extra={
            "gathered": gathered_bytes(job, held, 0),
            "gradients": float(job.training.gradient_bytes * held),
        },
    )


def _once(job: Job, group: ParameterGroup, chunk: int, size: int) -> Iterator[Bucket]:
    """In a pipeline: the gathers before the first forward."""
    for after, elements in enumerate(group.chunks[chunk].parts):
        if elements:
            nbytes = gathered_bytes(job, elements, 0)
            yield Bucket("all_gather", nbytes, after, _over(job, group, size), group.name)


def _over(job: Job, group: ParameterGroup, size: int) -> Group:
    """Those ranks."""
    return within(job, size) if group.over == REPLICAS else group.over


def _burst(job: Job, group: ParameterGroup, chunk: int, size: int) -> Iterator[Bucket]:
    """In a pipeline: the reductions after the last backward."""
    for after, elements in enumerate(group.chunks[chunk].parts):
        nbytes = float(elements * job.training.gradient_bytes)
        if elements:
            yield Bucket("reduce_scatter", nbytes, after, _over(job, group, size), group.name)
        if elements and size < replicas(job):
            yield Bucket("all_reduce", nbytes / size, after, across(size), group.name)


def summed_by(job: Job) -> int:
    """Replicas that share sums of gradients: nobody where they are reduced after the last microbatch only."""
    return 1 if job.parallel.pp > 1 or SYNC.of(job) == "last" else sharing(job)


def refuses(job: Job) -> Iterator[Refusal]:
    """What PyTorch's FSDP does not go together with."""
    yield from _resharding(job)
    yield from unknown_to_software(job)
    yield from wrong_gathers(job)
    if job.parallel.pp > 1:
        yield from _in_pipelines(job)
    if job.framework.family == "megatron" and job.training.precision == "fp16":
        yield Refusal("strategy", "Megatron-LM does not run PyTorch's FSDP2 in fp16; bf16 would do, or zero1")


def _resharding(job: Job) -> Iterator[Refusal]:
    """Ranks that share parameters between forward and backward, and what is fetched then."""
    size, within_one = reshard(job), sharing(job) < replicas(job)
    if size and size > 1 and sharing(job) % size:
        shared = f"the {sharing(job)} replicas that share parameters" if within_one else f"{replicas(job)} replicas"
        yield Refusal("reshard_after_forward", f"{shared} are not divisible by {size}")
    if job.parallel.pp > 1 and size is not None and size != 1:
        yield Refusal(
            "reshard_after_forward",
            "in a pipeline PyTorch keeps parameters unsharded after their first forward; leave it out",
        )
    if BACKWARD_PREFETCH.of(job) and (job.parallel.pp > 1 or size == 1):
        yield Refusal(
            "backward_prefetch", "parameters stay unsharded until their backward, so nothing is gathered; leave it out"
        )
    if job.experts_apart and size is not None and size > 1:
        yield Refusal("reshard_after_forward", "a number is not simulated yet with experts that fewer ranks hold")


def _in_pipelines(job: Job) -> Iterator[Refusal]:
    """What there is not where parameters stay whole from the first pass to the last."""
    name = job.sharding.strategy
    if FORWARD_PREFETCH.of(job):
        yield Refusal(
            "forward_prefetch", "in a pipeline parameters stay unsharded after the first forward; leave it out"
        )
    if GATHER_DTYPE.of(job) == "fp8":
        yield Refusal("gather_dtype", f"fp8 is not simulated yet with {name} in a pipeline; pp=1 would work")
    if SYNC.of(job):
        yield Refusal("sync", "in a pipeline PyTorch reduces gradients after the last micro-batch; leave it out")
    if job.framework.family == "megatron":
        yield Refusal(
            "strategy",
            f"Megatron-LM runs PyTorch's FSDP2 without a pipeline only; zero1 works with pp={job.parallel.pp}",
        )
    if job.sharding.offload.any:
        yield Refusal("offload.parameters", f"not simulated yet with {name} in a pipeline; pp=1 would work")
    if job.model.lora is not None:
        yield Refusal("strategy", f"adapters are not simulated yet with {name} in a pipeline; pp=1 would work")


FSDP = Strategy(
    plan=fsdp,
    title="FSDP",
    shares=frozenset(STATES),
    every_pass=True,
    saves_more_than=frozenset({"ddp", "zero1", "zero2", "hsdp"}),
    options=OPTIONS,
    offloads=frozenset({"optimizer", "parameters"}),
    moves_together=True,
    experts_apart=True,
    mixed_weights=True,
    updates_in_backward=True,
    framework="pytorch-fsdp2",
    summed_by=summed_by,
    refuses=refuses,
    notes=notes,
)
strategies.register("fsdp")(FSDP)
