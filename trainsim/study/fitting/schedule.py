"""Orders of passes that keep fewer microbatches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways

THRIFTY = (("1f1b", 1), ("v-half", 2), ("v-min", 2))
"""Schedules that keep little, and chunks per rank; the first one switches interleaving off."""


@ways.register("schedule")
def schedule(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Each of THRIFTY but the job's own."""
    now, spec = job.pipeline, scenario.spec.pipeline
    if job.parallel.pp == 1:
        return
    for name, chunks in THRIFTY:
        if (name, chunks) == (now.schedule, now.chunks):
            continue
        changes: dict[str, Any] = {"pipeline.schedule": name, "pipeline.chunks": chunks}
        stale = {"group": spec.group, "layout": spec.layout if chunks != now.chunks else None}
        changes |= {f"pipeline.{key}": None for key, value in stale.items() if value is not None}
        off = ", without chunks" if name == "1f1b" and now.chunks > 1 else ""
        yield Trial(kind="schedule", title=f"schedule {name}{off}", changes=changes)
