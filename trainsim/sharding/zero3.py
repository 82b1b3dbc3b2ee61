"""
ZeRO-3: parameters are shared as well, gathered module by module ahead of their use and given back after it.

What is gathered together, when, and what stays is DeepSpeed's coordinator's doing (``coordinator.py``). Gradients fill
one buffer and are reduce-scattered whenever it is full, after every microbatch. Small parameters are never given back;
they are gathered one by one after the update. Source: deepspeedai/DeepSpeed 0.19,
deepspeed/runtime/zero/partitioned_param_coordinator.py and stage3.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from typing import Any

from trainsim.contracts.groups import Queue
from trainsim.contracts.instructions import Hold
from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan
from trainsim.sharding import strategies
from trainsim.sharding.coordinator import Coordination, Gather, Limits, coordinate
from trainsim.sharding.flights import Flight, FlightStep, PassFlights, PassMoment, Role, in_issue_order, roles
from trainsim.sharding.gradient_copies import gradient_steps, parameter_steps
from trainsim.sharding.parameter_groups import ParameterGroup, Shards
from trainsim.sharding.plan import Bucket, ShardingPlan
from trainsim.sharding.quantized import QUANTIZED_GRADIENTS, QUANTIZED_WEIGHTS, exchanged, gathered
from trainsim.sharding.replicas import across, of_a_node, replicas, within
from trainsim.sharding.strategy import STATES, Derived, Refusal, Strategy
from trainsim.sharding.strategy_options import REDUCE_BUCKET, SHARD_SIZE, Automatic, Option
from trainsim.sharding.tensorwise import Whole, ipg_buckets, whole
from trainsim.sharding.zero2 import gradient_marks
from trainsim.sharding.zero2 import refuses as zero2_refuses

Number = Option[float | None]
PREFETCH: Number = Option(
    "prefetch_bucket",
    None,
    "count or 0",
    "elements prefetched per module",
    Automatic(lambda hidden: 9 * hidden**2 // 10, "0.9 hidden^2"),
)
MAX_LIVE: Number = Option("max_live_parameters", None, "count or 0", "the most elements gathered at once")
REUSE: Number = Option(
    "reuse_distance", None, "count or 0", "distance in elements between two uses of a parameter up to which it stays"
)
PERSISTENT: Number = Option(
    "persistence_threshold",
    None,
    "count or 0",
    "size up to which a parameter is never released",
    Automatic(lambda hidden: 10 * hidden, "10 hidden"),
)
SUB_GROUP: Number = Option(
    "sub_group",
    None,
    "count",
    "elements of a shard that are updated at once (sub_group_size); default: the framework's",
)
SECONDARY: Option[int | None] = Option(
    "secondary_partition", None, "group", "hpZ: ranks that share a second copy of the parameters"
)


MOST_SUB_GROUPS = 10_000


def zero3(job: Job, stage: int, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """Parameters, gradients and optimizer states shared by all replicas."""
    return partitioned(job, groups, replicas(job))


def partitioned(job: Job, groups: Sequence[ParameterGroup], size: int) -> ShardingPlan:
    """The exchange of parameters that groups of *size* replicas share; beyond a group gradients are summed once."""
    whole_model = whole(job)
    limits = limits_of(job)
    coordination = coordinate(whole_model.trace, whole_model.sizes, limits=limits)
    if size == 1 and job.sharding.offload.parameters == "none":  # nothing is ever gathered
        coordination = replace(coordination, gathers=(), releases=(), persistent=0)
    passes = _GatheredPasses(job, whole_model, coordination, size, {})
    plan = {role: passes.beside(passes.kind(role)) for role in roles()}
    per_element = job.training.number_bytes
    persistent = [p for p in whole_model.sizes if p <= limits.persistence_threshold and coordination.persistent]
    secondary = SECONDARY.of(job)
    return ShardingPlan(
        reductions=(tuple(_over_groups(job, whole_model, size)),),
        gathers=(
            tuple(
                Bucket("all_gather", float(per_element * p), whole_model.last, within(job, size)) for p in persistent
            ),
        ),
        shards={group.name: Shards.of_all(size) for group in groups},
        norms=_norms(job, whole_model.trainable / size),
        flights=plan,
        extra={
            "gathered": float(per_element * sum(persistent)),
            "buffers": job.training.gradient_bytes * min(passes.bucket, float(whole_model.trainable)),
            "weights": float(per_element * sum(whole_model.sizes)) / secondary if secondary else 0.0,
        },
    )


def _norms(job: Job, elements: float) -> tuple[float, ...]:
    """DeepSpeed adds up the norms of its optimizer's sub-groups, parts of *elements*, one by one, in fp64.

    Raises InvalidPlan for more of them than a step could be made of.
    """
    limit = sub_group(job)
    parts = ceil(elements / limit) if limit else 1
    if parts > MOST_SUB_GROUPS:
        enough = ceil(elements / MOST_SUB_GROUPS)
        raise InvalidPlan(
            f"sharding.sub_group = {limit:.0f}: each rank would update {parts} sub-groups one by one, more than "
            f"{MOST_SUB_GROUPS}; sub_group: {enough} would work, DeepSpeed's default is 1e9"
        )
    return (8.0,) * parts


def sub_group(job: Job) -> float:
    """Elements that are updated at once where parameters are shared; 0: all."""
    return SUB_GROUP.of(job) or job.framework.memory.states.sub_group


def limits_of(job: Job) -> Limits:
    """The scenario's numbers, else DeepSpeed's defaults."""
    usual = Limits()

    def given(option: Number, default: int) -> int:
        value = option.of(job)
        return default if value is None else int(value)

    return Limits(
        prefetch_bucket=given(PREFETCH, usual.prefetch_bucket),
        max_live=given(MAX_LIVE, usual.max_live),
        max_reuse_distance=given(REUSE, usual.max_reuse_distance),
        persistence_threshold=given(PERSISTENT, usual.persistence_threshold),
    )


def _over_groups(job: Job, whole_model: Whole, size: int) -> Iterator[Bucket]:
    """Sums of the shards over groups, once per step, in the buckets of the reductions."""
    if size == replicas(job):
        return
    for tensors, _ in ipg_buckets(whole_model, reduce_bucket(job)):
        nbytes = float(job.training.gradient_bytes * whole_model.elements(tensors)) / size
        yield Bucket("all_reduce", nbytes, whole_model.last, across(size))


def reduce_bucket(job: Job) -> float:
    """Elements of the buffer that gradients are reduced from."""
    return REDUCE_BUCKET.of(job) or job.framework.communication.bucket_parameters


@dataclass(frozen=True, slots=True)
class _GatheredPasses:
    """Both passes of a model whose parameters *size* replicas share."""

    job: Job
    whole_model: Whole
    coordination: Coordination
    size: int
    known: dict[Role, PassFlights]

    @property
    def bucket(self) -> float:
        return reduce_bucket(self.job)

    def kind(self, role: Role) -> Role:
        """The first of the roles whose passes are like that of *role*."""
        second, offload = SECONDARY.of(self.job) is not None, self.job.sharding.offload.any
        return Role(role.work, role.first and (second or offload), role.last and offload)

    def beside(self, role: Role) -> PassFlights:
        """The flights of a pass; passes that are alike share them."""
        if role not in self.known:
            self.known[role] = self.forward(role) if role.work == "F" else self.backward(role)
        return self.known[role]

    def forward(self, role: Role) -> PassFlights:
        """Gathers ahead of the layers; some are for the backward already."""
        gathers = self.coordination.forward_gathers
        flights = in_issue_order(self._flights(gathers, role), "F")
        return PassFlights(flights, tuple(self._held("F")))

    def backward(self, role: Role) -> PassFlights:
        """Gathers, what the forward has gathered ahead, and reductions."""
        gathers = self.coordination.backward_gathers
        flights = in_issue_order((*self._flights(gathers, role), *self._reductions(role)), "B")
        marks = (*gradient_marks(self.job, self.whole_model, 0.0), *self._held("B"))
        waits = tuple(
            (self._when(needed), _name(issued, needed))
            for (issued, needed), _ in self._together(self.coordination.forward_gathers)
            if needed >= self.coordination.backward
        )
        return PassFlights(flights, marks, waits)

    def _when(self, call: int) -> PassMoment:
        return PassMoment(self.whole_model.at[call])

    def _together(self, gathers: Sequence[Gather]) -> Iterator[tuple[tuple[int, int], list[Gather]]]:
        """Gathers that are issued at one part and needed at one part are one flight: ((issued, needed) calls, them)."""

        def key(gather: Gather) -> tuple[bool, PassMoment, PassMoment]:
            later = gather.issued < self.coordination.backward <= gather.needed
            return later, self._when(gather.issued), self._when(gather.needed)

        for _, some in groupby(gathers, key):
            listed = list(some)
            yield (listed[0].issued, listed[0].needed), listed

    def _flights(self, gathers: Sequence[Gather], role: Role) -> Iterator[Flight]:
        second = SECONDARY.of(self.job)
        again = second is not None and not (role.work == "F" and role.first)
        for (issued, needed), some in self._together(gathers):
            full = float(self.job.training.number_bytes * sum(g.elements for g in some))
            later = issued < self.coordination.backward <= needed
            ranks = second if again and second else self.size
            packed = full if any(len(g.parameters) > 1 for g in some) else 0.0
            yield Flight(
                _name(issued, needed),
                tuple(step for g in some for step in self._gathered(g, ranks, again)),
                issued=self._when(issued),
                needed=None if later else self._when(needed),
                takes=(Hold("buffers", packed),),
                gives=(Hold("buffers", -packed),),
                chain=Queue.GATHER if again else Queue.DATA,
                gathers=True,
            )

    def _gathered(self, gather: Gather, ranks: int, again: bool) -> Iterator[FlightStep]:
        """One gather; parameters that are kept off the GPU come first, unless a second copy is *again* there."""
        if not again:
            yield from parameter_steps(self.job, gather.elements / self.size)
        yield from gathered(self.job, gather.elements, len(gather.parameters), ranks=ranks)

    def _held(self, work: str) -> Iterator[tuple[PassMoment, Hold]]:
        """Parameters that are there: the most of a part's calls from its start, and what is left at its end."""
        per_element = self.job.training.number_bytes
        most, after = self.coordination.levels(len(self.whole_model.at))
        back = self.coordination.backward
        calls = range(back, len(after)) if work == "B" else range(back)
        live = after[back - 1] if work == "B" else 0
        for part, some in groupby(calls, lambda call: self.whole_model.at[call]):
            of_part = list(some)
            top, left = max(most[call] for call in of_part), after[of_part[-1]]
            yield PassMoment(part), Hold("gathered", float(per_element * (top - live)))
            yield PassMoment(part, after=True), Hold("gathered", float(per_element * (left - top)))
            live = left

    def _reductions(self, role: Role) -> Iterator[Flight]:
        buckets = list(ipg_buckets(self.whole_model, self.bucket))
        for k, (tensors, full) in enumerate(buckets):
            elements = self.whole_model.elements(tensors)
            nbytes = float(self.job.training.gradient_bytes * elements)
            own = elements / self.size
            copies = gradient_steps(self.job, own, sharded=True, first=role.first, last=role.last)
            yield Flight(
                f"reduce {k}",
                (
                    FlightStep("traffic", 2 * nbytes),
                    *exchanged(self.job, self.whole_model, tensors, self.size),
                    *copies,
                ),
                issued=PassMoment(full, after=True),
                needed=PassMoment(full, after=True) if k == len(buckets) - 1 or not self.job.sharding.overlap else None,
                takes=(Hold("buffers", nbytes),),
                gives=(Hold("buffers", -nbytes),),
            )


def _name(issued: int, needed: int) -> str:
    return f"gather {issued}-{needed}"


def refuses(job: Job) -> Iterator[Refusal]:
    """What ZeRO-2 refuses, and groups that nothing is done in."""
    yield from zero2_refuses(job)
    if SHARD_SIZE.of(job) is not None and not QUANTIZED_GRADIENTS.of(job):
        yield Refusal(
            "shard_size",
            f"{job.sharding.strategy} shares states among all replicas, and groups are those of quantized_gradients; "
            "turn that on, or mics shares within groups",
        )


def brings(given: Mapping[str, Any], node: int) -> Iterator[Derived]:
    """Gradients that are quantized are first exchanged within a node."""
    if given.get(QUANTIZED_GRADIENTS.name):
        yield from of_a_node(given, node)


def notes(job: Job) -> Iterator[Derived]:
    """Quantized gradients that nobody sends; a second copy of parameters whose gathers leave the node."""
    if QUANTIZED_GRADIENTS.of(job) and SHARD_SIZE.of(job) == replicas(job):
        reason = "without effect: all replicas are in one group, and gradients are quantized between groups only"
        yield Derived(QUANTIZED_GRADIENTS.name, "true", reason)
    second, node = SECONDARY.of(job), max(1, job.cluster.gpus_per_node // job.parallel.tp)
    if second is not None and second > node:
        yield Derived(SECONDARY.name, second, f"more than the {node} replicas of a node: its gathers cross nodes")


OPTIONS = (REDUCE_BUCKET, PREFETCH, MAX_LIVE, REUSE, PERSISTENT, SUB_GROUP)
QUANTIZED = (QUANTIZED_WEIGHTS, QUANTIZED_GRADIENTS, SECONDARY, SHARD_SIZE)
ZERO3 = Strategy(
    plan=zero3,
    title="ZeRO-3",
    shares=frozenset(STATES),
    every_pass=True,
    saves_more_than=frozenset({"ddp", "zero1", "zero2", "zeropp", "mics"}),
    options=OPTIONS + QUANTIZED,
    brings=brings,
    offloads=frozenset({"optimizer", "parameters"}),
    framework="deepspeed",
    summed_by=replicas,
    refuses=refuses,
    notes=notes,
)
strategies.register("zero3")(ZERO3)
