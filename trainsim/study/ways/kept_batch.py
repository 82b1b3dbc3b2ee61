"""What else a scenario must say so that its global batch stays when its GPUs are cut up another way."""

from __future__ import annotations

from math import ceil
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario


def keeping_batch(
    scenario: Scenario,
    job: Job,
    *,
    ranks: int | None = None,
    replica: int | None = None,
    micro_batch: int | None = None,
) -> dict[str, Any]:
    """Changes that keep the global batch with other *ranks* in all, per *replica*, or sequences per *micro_batch*.

    dp follows from the others. A batch that does not divide among more replicas grows to the next that does.
    """
    parallel, training, spec = job.parallel, job.training, scenario.spec
    dp = max((ranks or parallel.ranks) // (replica or parallel.ranks // parallel.dp), 1)
    least = dp * (micro_batch or training.micro_batch)
    batch = least * ceil(training.global_batch / least)
    changes: dict[str, Any] = {}
    if spec.parallel.dp is not None and dp != parallel.dp:
        changes["parallel.dp"] = None
    if batch != spec.training.global_batch or spec.training.gradient_accumulation is not None:
        changes |= with_batch(scenario, job, batch, micro_batch)
    return changes


def with_batch(scenario: Scenario, job: Job, batch: int, micro_batch: int | None = None) -> dict[str, Any]:
    """Changes to *batch* sequences per step, of the same micro-batch or *micro_batch*: accumulation follows."""
    changes: dict[str, Any] = {"training.global_batch": batch}
    if scenario.spec.training.gradient_accumulation is not None:
        changes["training.gradient_accumulation"] = None
        changes["training.micro_batch"] = micro_batch or job.training.micro_batch
    return changes
