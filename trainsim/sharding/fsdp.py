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
from dataclasses import dataclass, replace

from trainsim.contracts.groups import ALONE, EXPERT_REPLICAS, REPLICAS, Group, Queue
from trainsim.contracts.instructions import Hold
from trainsim.contracts.job import Job
from trainsim.sharding import strategies
from trainsim.sharding.flights import Flight, FlightStep, PassFlights, PassMoment, Role, in_issue_order, in_turn, roles
from trainsim.sharding.fsdp_units import FsdpUnit, fresh_shards, made, units
from trainsim.sharding.parameter_groups import ParameterGroup, Shards
from trainsim.sharding.plan import Bucket, ShardingPlan, by_readiness
from trainsim.sharding.replicas import across, replicas, sharing, within
from trainsim.sharding.strategy import STATES, Refusal, Strategy
from trainsim.sharding.strategy_options import Option

RESHARD: Option[bool | int | None] = Option(
    "reshard_after_forward", None, "flag or group", "false keeps parameters gathered until their backward"
)
BACKWARD_PREFETCH: Option[str | None] = Option(
    "backward_prefetch", None, ("pre", "post", "none"), "when the gather for the next unit of a backward is issued"
)
SYNC: Option[str | None] = Option(
    "sync", None, ("every", "last"), "whether gradients are reduced after every micro-batch or after the last one"
)
MASTER = 4.0  # bytes of an element of a shard: fp32, also on its way from and to the host


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
        plan = {role: _UnitPass(job, size, role, fresh).beside() for role in roles()}
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
            "gathered": float(job.training.stream_bytes * held),
            "gradients": float(job.training.gradient_bytes * held),
        },
    )


def _once(job: Job, group: ParameterGroup, chunk: int, size: int) -> Iterator[Bucket]:
    """In a pipeline: the gathers before the first forward."""
    per_element = job.training.stream_bytes
    for after, elements in enumerate(group.chunks[chunk].parts):
        if elements:
            yield Bucket("all_gather", elements * per_element, after, _over(job, group, size), group.name)


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


@dataclass(frozen=True, slots=True)
class _UnitPass:
    """One pass over a model that is sharded by *size*."""

    job: Job
    size: int
    role: Role
    fresh: float

    def beside(self) -> PassFlights:
        flights: list[Flight] = []
        marks: list[tuple[PassMoment, Hold | FlightStep]] = []
        back = self.role.work == "B"
        for unit in units(self.job):
            gathers = self._gather_back(unit) if back else self._gather(unit)
            flights += gathers
            marks += self._marks_back(unit, bool(gathers)) if back else self._marks(unit, bool(gathers))
        if back:
            first = self.role.last if SYNC.of(self.job) == "last" else self.role.first
            marks += made(self.job, self.size, self.fresh) if first and self.fresh else ()
            flights += (flight for unit in units(self.job) for flight in self._reduce(unit))
        return PassFlights(in_issue_order(flights, self.role.work), tuple(marks))

    @property
    def copies(self) -> bool:
        """FSDP2: gathers go through a buffer."""
        return self.job.framework.communication.fsdp == "fsdp2"

    @property
    def fills(self) -> bool:
        """Gradients are copied into the buffer that is reduced, and made beside it."""
        return self.job.framework.communication.fsdp != "megatron"

    @property
    def keeps(self) -> bool:
        """Parameters stay whole between forward and backward."""
        return reshard(self.job) == 1

    @property
    def between(self) -> int:
        """Ranks that share parameters between forward and backward."""
        return reshard(self.job) or self.size

    @property
    def away(self) -> bool:
        """Shards of everything are in host memory."""
        return self.job.sharding.offload.any

    @property
    def reduces(self) -> bool:
        return self.role.last or SYNC.of(self.job) != "last"

    def _ranks(self, unit: FsdpUnit) -> int:
        """Ranks that share a unit."""
        return self.job.parallel.edp if unit.experts else self.size

    def _among(self, unit: FsdpUnit, ranks: int) -> Group:
        """So many of those who share a unit."""
        return EXPERT_REPLICAS if unit.experts else within(self.job, ranks)

    def _full(self, unit: FsdpUnit) -> float:
        return self.job.training.stream_bytes * (unit.elements - unit.quantised.elements) + unit.quantised.nbytes

    def _sums(self, unit: FsdpUnit) -> float:
        return float(self.job.training.gradient_bytes * unit.trained)

    def _gather(self, unit: FsdpUnit) -> tuple[Flight, ...]:
        """Issued one unit ahead: the root's at once, a block's when the part before it begins."""
        if self.keeps and SYNC.of(self.job) == "last" and not self.role.first:
            return ()
        issued = PassMoment(unit.first) if unit.root else PassMoment(unit.first + 1)
        return (self._gathering(unit, issued, PassMoment(unit.first), self._ranks(unit)),)

    def _gathering(self, unit: FsdpUnit, issued: PassMoment, needed: PassMoment, ranks: int) -> Flight:
        held = Hold("buffers" if self.copies else "gathered", self._full(unit))
        moved = FlightStep("host_in", MASTER * unit.elements / ranks, ALONE)
        steps = (FlightStep("all_gather", self._full(unit), self._among(unit, ranks)),)
        if ranks == 1:  # nobody to gather from: only a copy in the precision of the passes
            steps = (FlightStep("traffic", MASTER * unit.elements + self._full(unit)),)
        return Flight(
            f"gather {unit.name}", (moved, *steps) if self.away else steps, issued, needed, (held,), gathers=True
        )

    def _marks(self, unit: FsdpUnit, gathered: bool) -> Iterator[tuple[PassMoment, Hold | FlightStep]]:
        full = self._full(unit)
        if gathered and self.copies:
            yield from _copied_out(unit.first, unit.first - 1, full)
        if not unit.root and not self.keeps:
            kept = full / self.between if self.between != self.size else 0.0
            yield PassMoment(unit.first, after=True), Hold("gathered", kept - full)

    def _gather_back(self, unit: FsdpUnit) -> tuple[Flight, ...]:
        """Issued before the backward of the unit before it; after it, or when it is needed, if the scenario says so."""
        if unit.root or self.keeps:
            return ()
        here = PassMoment(unit.first)
        when = {"pre": PassMoment(unit.first - 1), "post": PassMoment(unit.first - 1, after=True), "none": here}
        issued = when[BACKWARD_PREFETCH.of(self.job) or "pre"]
        between = self._ranks(unit) if unit.experts else self.between
        return (self._gathering(unit, issued, here, between),)

    def _reduce(self, unit: FsdpUnit) -> Iterator[Flight]:
        if not self.reduces or not unit.trained:
            return
        top, nbytes = self.job.model.layers + 1, self._sums(unit)
        done = PassMoment(unit.first, after=True)
        late = PassMoment(unit.first + 1, after=True) if self.copies and unit.first < top else None
        held = Hold("buffers", nbytes)
        size = self._ranks(unit)
        copied = (FlightStep("host_out", MASTER * unit.trained / size, ALONE),) if self.away else ()
        name, whole_group = f"reduce {unit.name}", unit.experts or size == replicas(self.job)
        scatter = (FlightStep("reduce_scatter", nbytes, self._among(unit, size)),) if size > 1 else ()
        steps = (*scatter, *(copied if whole_group else ()))
        if steps:
            yield Flight(name, steps, done, late, (held,), (Hold("buffers", -nbytes),))
        if not whole_group:
            average = FlightStep("all_reduce", nbytes / self.size, across(self.size))
            yield Flight(f"average {unit.name}", (average, *copied), name if steps else done, chain=Queue.REPLICAS)

    def _marks_back(self, unit: FsdpUnit, gathered: bool) -> Iterator[tuple[PassMoment, Hold | FlightStep]]:
        full, sums, over = self._full(unit), self._sums(unit), PassMoment(unit.first, after=True)
        low = float(self.job.training.stream_bytes * unit.trained)
        if gathered and self.copies:
            yield from _copied_out(unit.first, unit.first + 1, full)
        if gathered and self.between != self.size:
            yield PassMoment(unit.first), Hold("gathered", -full / self.between)
        accumulates = SYNC.of(self.job) == "last"
        beside = low if self.fills else 0.0 if accumulates else sums
        yield PassMoment(unit.last), Hold("gradients", beside)
        if accumulates and not (self.role.first and self.role.last):
            if self.fills:
                yield over, FlightStep("traffic", low + 2 * sums)
            change = sums * (self.role.first - self.role.last)
            yield over, Hold("gradients", change)
        if self.reduces and self.fills and (self.copies or not self.job.training.autocast):  # else reduced where made
            yield over, FlightStep("traffic", low + sums)
        yield over, Hold("gradients", -beside)
        if not (self.keeps and accumulates and not self.role.last):
            yield over, Hold("gathered", -full)


def _copied_out(part: int, following: int, nbytes: float) -> Iterator[tuple[PassMoment, Hold | FlightStep]]:
    """From the gather's buffer into parameters; the buffer is free when the next unit is copied out."""
    yield PassMoment(part), Hold("gathered", nbytes)
    yield PassMoment(part), FlightStep("traffic", 2 * nbytes)
    yield PassMoment(following), Hold("buffers", -nbytes)


def reshard(job: Job) -> int | None:
    """Ranks that share parameters between forward and backward: 0 as outside, 1 nobody; None: not said."""
    given = RESHARD.of(job)
    return int(not given) if isinstance(given, bool) else given


def summed_by(job: Job) -> int:
    """Replicas that share sums of gradients: nobody where they are reduced after the last microbatch only."""
    return 1 if job.parallel.pp > 1 or SYNC.of(job) == "last" else sharing(job)


def refuses(job: Job) -> Iterator[Refusal]:
    """What PyTorch's FSDP does not go together with."""
    size, within_one = reshard(job), sharing(job) < replicas(job)
    if size and size > 1 and sharing(job) % size:
        shared = f"the {sharing(job)} replicas that share parameters" if within_one else f"{replicas(job)} replicas"
        yield Refusal("reshard_after_forward", f"{shared} do not divide by {size}")
    if job.parallel.pp > 1 and size is not None and size != 1:
        yield Refusal(
            "reshard_after_forward",
            "in a pipeline PyTorch keeps parameters whole after their first forward; leave it out",
        )
    if BACKWARD_PREFETCH.of(job) and (job.parallel.pp > 1 or size == 1):
        yield Refusal(
            "backward_prefetch", "parameters stay whole until their backward, so nothing is fetched; leave it out"
        )
    if job.experts_apart and size is not None and size > 1:
        yield Refusal("reshard_after_forward", "a number is not simulated yet with experts that fewer ranks hold")
    if job.parallel.pp > 1 and SYNC.of(job):
        yield Refusal("sync", "in a pipeline PyTorch reduces gradients after the last micro-batch; leave it out")
    if job.framework.family == "megatron" and job.parallel.pp > 1:
        yield Refusal(
            "strategy",
            f"Megatron-LM runs PyTorch's FSDP2 without a pipeline only; zero1 works with pp={job.parallel.pp}",
        )
    if job.framework.family == "megatron" and job.training.precision == "fp16":
        yield Refusal("strategy", "Megatron-LM does not run PyTorch's FSDP2 in fp16; bf16 would do, or zero1")
    if job.parallel.pp > 1 and job.sharding.offload.any:
        yield Refusal(
            "offload.parameters", f"not simulated yet with {job.sharding.strategy} in a pipeline; with pp=1 it is"
        )
    if job.parallel.pp > 1 and job.model.lora is not None:
        yield Refusal(
            "strategy",
            f"adapters are not simulated yet with {job.sharding.strategy} in a pipeline; with pp=1 they are",
        )


FSDP = Strategy(
    plan=fsdp,
    title="FSDP",
    shares=frozenset(STATES),
    every_pass=True,
    saves_more_than=frozenset({"ddp", "zero1", "zero2", "hsdp"}),
    options=(RESHARD, BACKWARD_PREFETCH, SYNC),
    offloads=frozenset({"optimizer", "parameters"}),
    moves_together=True,
    experts_apart=True,
    mixed_weights=True,
    framework="pytorch-fsdp2",
    summed_by=summed_by,
    refuses=refuses,
)
strategies.register("fsdp")(FSDP)
