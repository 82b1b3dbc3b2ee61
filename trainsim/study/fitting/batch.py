"""Fewer sequences at a time."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.checks import divisors
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways
from trainsim.study.fitting.cut import recut


@ways.register("micro batch")
def micro_batch(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Half of the micro-batch (or its largest divisor), and one sequence: accumulation keeps the global batch."""
    now = job.training.micro_batch
    for size in dict.fromkeys([divisors(now)[-2], 1] if now > 1 else []):
        changes = {"training.micro_batch": size, **recut(scenario, job, micro_batch=size)}
        yield Trial(kind="batch", title=f"micro batch {size}", changes=changes)
