"""Fewer or more sequences at a time."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.checks import divisors
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way
from trainsim.study.ways.kept_batch import keeping_batch, with_batch

LARGER_BATCH = "larger batch"
"""The kind of changes after which a step trains on more sequences, which is another training."""


@way("smaller micro batch", MEMORY, TIME)
def smaller_micro_batch(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Half of the micro-batch (or its largest divisor), and one sequence: accumulation keeps the global batch."""
    now = job.training.micro_batch
    for size in dict.fromkeys([divisors(now)[-2], 1] if now > 1 else []):
        yield _micro_batch(scenario, job, size)


@way("larger micro batch", TIME)
def larger_micro_batch(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Twice the micro-batch, where the global batch divides by it."""
    if job.training.microbatches % 2 == 0:
        yield _micro_batch(scenario, job, 2 * job.training.micro_batch)


@way("larger batch", TIME)
def larger_batch(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Twice the global batch, for which the pipeline fills and the weights are updated once."""
    twice = 2 * job.training.global_batch
    yield Change(kind=LARGER_BATCH, title=f"global batch {twice}", values=with_batch(scenario, job, twice))


def _micro_batch(scenario: Scenario, job: Job, size: int) -> Change:
    values = {"training.micro_batch": size, **keeping_batch(scenario, job, micro_batch=size)}
    return Change(kind="batch", title=f"micro batch {size}", values=values)
