"""
ZeRO-2: gradients are shared too, so they are reduced after every microbatch, bucket by bucket as they are ready.

DeepSpeed all-reduces whole buckets and each rank copies its part out of them. Without overlap the backward waits for
each; with it a second bucket fills while one is on its way, and a third waits. The updated parameters are gathered in
one piece at the end of the step. Source: deepspeedai/DeepSpeed 0.19, deepspeed/runtime/zero/stage_1_and_2.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.contracts.instructions import Hold
from trainsim.contracts.job import Job
from trainsim.sharding import strategies
from trainsim.sharding.cutting import bucket_size
from trainsim.sharding.flights import Flight, FlightStep, PassFlights, PassMoment, Role, in_issue_order, in_turn, roles
from trainsim.sharding.gradient_copies import gradient_steps
from trainsim.sharding.parameter_groups import ParameterGroup, Shards
from trainsim.sharding.plan import Bucket, ShardingPlan
from trainsim.sharding.replicas import replicas
from trainsim.sharding.strategy import Refusal, Strategy
from trainsim.sharding.strategy_options import REDUCE_BUCKET
from trainsim.sharding.tensorwise import Whole, ipg_buckets, whole


def zero2(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """Reductions beside every backward, a gather per step."""
    size, whole_model = replicas(job), whole(job)
    bucket = bucket_size(job, 0, 0, overlapped=True, replicas=size) or float(whole_model.trainable)
    marks = tuple(gradient_marks(job, whole_model, min(bucket, whole_model.trainable) * (1 + job.sharding.overlap)))

    def back(role: Role) -> PassFlights:
        return PassFlights(in_issue_order(_reductions(job, whole_model, bucket, role), "B"), marks)

    plan = {role: back(role) if role.work == "B" else PassFlights() for role in roles()}
    if not job.sharding.overlap:
        plan = {role: in_turn(beside) for role, beside in plan.items()}
    nbytes = float(job.training.number_bytes * whole_model.trainable)
    return ShardingPlan(
        reductions=((),),
        gathers=((Bucket("all_gather", nbytes, whole_model.last),),),
        shards={group.name: Shards(gradients=size, optimizer=size) for group in groups},
        flights=plan,
    )


def _reductions(job: Job, whole_model: Whole, bucket: float, role: Role) -> Iterator[Flight]:
    """Each bucket may leave when the one before it has arrived, and the backward waits until it may."""
    buckets, usual = list(ipg_buckets(whole_model, bucket)), job.framework.communication.zero1_operation
    operation = "reduce_scatter" if usual == "reduce" else usual  # owners of whole tensors are ZeRO-1's only
    for k, (tensors, full) in enumerate(buckets):
        elements = whole_model.elements(tensors)
        nbytes = float(job.training.gradient_bytes * elements)
        copies = gradient_steps(job, elements / replicas(job), first=role.first, last=role.last)
        following = buckets[k + 1][1] if k + 1 < len(buckets) else whole_model.last
        yield Flight(
            f"reduce {k}",
            (FlightStep(operation, nbytes), *copies),
            issued=PassMoment(full, after=True),
            needed=PassMoment(following, after=True),
            takes=(Hold("buffers", nbytes),),
            gives=(Hold("buffers", -nbytes),),
        )


def gradient_marks(job: Job, whole_model: Whole, buffered: float) -> Iterator[tuple[PassMoment, Hold | FlightStep]]:
    """What a backward does with gradients: each is there until it is copied into a bucket, one at a time; *buffered*
    elements of buckets are held from its start to its end."""
    per_element = job.training.gradient_bytes
    yield PassMoment(0), Hold("buffers", per_element * buffered)
    largest = whole_model.largest_by_part
    for part, elements in whole_model.trained_by_part.items():
        if elements:
            yield PassMoment(part), Hold("gradients", float(per_element * largest[part]))
            yield PassMoment(part, after=True), FlightStep("traffic", 2.0 * per_element * elements)
            yield PassMoment(part, after=True), Hold("gradients", -float(per_element * largest[part]))
    yield PassMoment(whole_model.last, after=True), Hold("buffers", -per_element * buffered)


def refuses(job: Job) -> Iterator[Refusal]:
    """DeepSpeed's pipeline engine takes ZeRO stages 0 and 1 only."""
    if job.parallel.pp > 1:
        yield Refusal(
            "strategy",
            f"{job.sharding.strategy} shards gradients, which a pipeline accumulates on each stage: DeepSpeed rejects "
            f"it with pp={job.parallel.pp}; zero1, or fsdp as PyTorch does it, would work, or pp=1",
        )


strategies.register("zero2")(
    Strategy(
        plan=zero2,
        title="ZeRO-2",
        shares=frozenset({"optimizer", "gradients"}),
        every_pass=True,
        saves_more_than=frozenset({"ddp", "zero1"}),
        options=(REDUCE_BUCKET,),
        refuses=refuses,
        framework="deepspeed",
        summed_by=replicas,
    )
)
