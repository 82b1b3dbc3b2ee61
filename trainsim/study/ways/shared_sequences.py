"""Sequences cut over more or fewer ranks, and how these see each other's keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.models.context_parallel import context_parallelisms
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way
from trainsim.study.ways.kept_batch import keeping_batch

PARALLEL = "parallel"
LONG = 16_384
"""Tokens of a sequence from which on cutting it is worth a try."""


@way("more context parallelism", MEMORY, TIME)
def more_context_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Twice the context parallelism, on the GPUs of half of the replicas."""
    if job.training.sequence_length >= LONG:
        yield _of(scenario, job, 2 * job.parallel.cp)


@way("less context parallelism", TIME)
def less_context_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Half of the context parallelism."""
    if job.parallel.cp % 2 == 0:
        yield _of(scenario, job, job.parallel.cp // 2)


@way("another context-parallel scheme", TIME)
def other_context_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Every other way of context parallelism."""
    for name in context_parallelisms if job.parallel.cp > 1 else ():
        if name != job.parallel.context_parallel:
            values = {"parallel.context_parallel": name, **_without_neighbours(scenario)}
            yield Change(kind=PARALLEL, title=f"{name} for keys and values", values=values)


def _of(scenario: Scenario, job: Job, cp: int) -> Change:
    replica = cp * job.parallel.tp * job.parallel.pp
    values = {"parallel.cp": cp, **_without_neighbours(scenario), **keeping_batch(scenario, job, replica=replica)}
    return Change(kind=PARALLEL, title=f"cp {cp}", values=values)


def _without_neighbours(scenario: Scenario) -> dict[str, None]:
    """The neighbours of a hybrid are found anew."""
    return {} if scenario.spec.parallel.ulysses is None else {"parallel.ulysses": None}
