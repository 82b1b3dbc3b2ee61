"""
The times by which a schedule plans its order: those of the job's own blocks.

Planners fill waits greedily, so that now and then an order that is planned for other times is the shorter one: the
order for passes of equal length is tried too, and the one that takes less with the job's times is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainsim.contracts.job import Job
from trainsim.schedules import Slot, Work, flat
from trainsim.schedules.lookup import facts, slots_of
from trainsim.schedules.makespan import makespan

Costs = tuple[float, float, float, float]
"""Seconds of a forward, an input gradient, a weight gradient and a message."""


class PassSeconds(NamedTuple):
    """Seconds of the three passes through one virtual stage."""

    forward: float
    input_gradient: float
    weight_gradient: float


def planned_costs(job: Job, stages: Sequence[PassSeconds], message: float) -> Costs | None:
    """What a planned schedule takes as ``costs`` where its *stages* take so long; None: passes of equal length."""
    mean = PassSeconds(*(sum(column) / len(stages) for column in zip(*stages, strict=True)))
    own = (*mean, message)
    planned, usual = (_rows(job, costs) for costs in (own, None))
    if planned == usual:
        return own
    return own if _seconds(job, stages, message, planned) <= _seconds(job, stages, message, usual) else None


def _rows(job: Job, costs: Costs | None) -> list[list[Slot]]:
    """The order that is planned for *costs*, rank by rank."""
    pipeline, ranks = job.pipeline, job.parallel.pp
    numbers = {"microbatches": job.training.microbatches, "chunks": pipeline.chunks}
    return [
        list(flat(slots_of(pipeline.schedule, rank, ranks, **numbers, group=pipeline.group, costs=costs)))
        for rank in range(ranks)
    ]


def _seconds(job: Job, stages: Sequence[PassSeconds], message: float, rows: list[list[Slot]]) -> float:
    """Seconds of one step in the order of *rows*."""
    column, pipeline = {Work.F: 0, Work.I: 1, Work.W: 2}, job.pipeline
    return makespan(
        rows,
        lambda stage, work: stages[stage][column[work]],
        chunks=pipeline.chunks,
        message=message,
        placement=facts(pipeline.schedule).placement,
    )
