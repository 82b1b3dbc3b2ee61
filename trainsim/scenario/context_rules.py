"""Long sequences in a scenario: the way's name, what a hybrid leaves out, and what does not go together."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.errors import InvalidPlan, NotBuilt, TrainsimError
from trainsim.models.context_parallel import context_parallelisms
from trainsim.models.layer_kind import counted
from trainsim.models.transformer import Transformer
from trainsim.scenario.checks import Fault, divisors
from trainsim.scenario.context import Context
from trainsim.schedules.lookup import facts
from trainsim.sharding import strategies
from trainsim.sharding.launches import shape_of

HYBRID = "hybrid"
"""The way that needs a number of neighbours."""


def resolve_way(context: Context) -> str:
    """The registered name of the way that the scenario asks for. Raises UnknownName."""
    with context.at("parallel.context_parallel"):
        return context_parallelisms.canonical(context.spec.parallel.context_parallel)


def resolve_neighbours(context: Context, model: Transformer, gpus_per_node: int) -> int:
    """Neighbours that share the heads in a hybrid: those of a node, as far as heads divide, if the scenario does not
    say."""
    spec = context.spec.parallel
    if spec.ulysses is not None:
        return spec.ulysses
    if resolve_way(context) != HYBRID or spec.cp == 1:
        return 1
    heads = [number for kind in counted(model.kinds) for number in (kind.heads, kind.kv_heads)]
    near = [d for d in divisors(spec.cp) if d * spec.tp <= gpus_per_node and all(n % (d * spec.tp) == 0 for n in heads)]
    neighbours = max(near, default=1)
    context.derived("parallel.ulysses", neighbours, "neighbours in a node whose number divides the heads of a rank")
    return neighbours


def check_context_parallel(context: Context, job: Job) -> None:
    """Raise for the first rule of context parallelism that the job breaks."""
    for fault, error in _broken(context, job):
        context.require(fault, error)


def _positions(job: Job) -> Iterator[Fault]:
    """A table of positions is cut as sequence parallelism cuts tokens, where parameters are not cut once more."""
    key, parallel, model = "parallel.position_parallel", job.parallel, job.model
    if not parallel.position_parallel:
        return
    if not parallel.sequence_parallel:
        yield Fault(key, "positions are cut together with tokens; sequence_parallel: true would work")
    if model.positions != "learned":
        yield Fault(key, f"{model.positions} positions have no table; leave it out")
    elif model.max_positions % parallel.tp:
        yield Fault(key, f"{model.max_positions} positions (max_positions) are not divisible by tp={parallel.tp}")
    if strategies[job.sharding.strategy].shares_parameters:
        able = ", ".join(name for name in strategies if not strategies[name].shares_parameters)
        yield Fault(key, f"not simulated with {job.sharding.strategy}; {able} would work")


def _broken(context: Context, job: Job) -> Iterator[tuple[Fault, type[TrainsimError]]]:
    yield from ((fault, InvalidPlan) for fault in _positions(job))
    way, cp = job.parallel.context_parallel, job.parallel.cp
    if context.spec.parallel.ulysses not in (None, 1) and way != HYBRID:
        reason = f"context_parallel: {way} does not use it; hybrid does"
        yield Fault("parallel.ulysses", reason), InvalidPlan
    if cp == 1:
        return
    if facts(job.pipeline.schedule).sliced:
        reason = f"not simulated with {job.pipeline.schedule}, which cuts sequences in time; 1f1b would work, or cp: 1"
        yield Fault("parallel.cp", reason), NotBuilt
    for kind in counted(job.model.kinds):
        for key, reason in context_parallelisms[way].refuses(kind, shape_of(job), job.training.attention):
            yield Fault(key, reason), InvalidPlan
