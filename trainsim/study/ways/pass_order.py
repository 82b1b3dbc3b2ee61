"""Other orders of passes on the same pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.schedules import schedules
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way

THRIFTY = (("1f1b", 1), ("v-half", 2), ("v-min", 2))
"""Schedules that keep little, and chunks per rank; the first one switches interleaving off."""
TRIED = (("1f1b", 1), ("interleaved-1f1b", 2), ("zb-h1", 1), ("zb-v", 2), ("v-half", 2), ("dualpipev", 2))
"""Schedules that people choose between, and chunks per rank where the scenario has no better number."""


@way("schedule that keeps less", MEMORY)
def thrifty_schedule(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Each of THRIFTY but the job's own."""
    for name, chunks in THRIFTY:
        yield from _schedule(scenario, job, name, chunks)


@way("schedule that idles less", TIME)
def quick_schedule(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Each of TRIED but the job's own; interleaved with the job's chunks, or with two."""
    for name, usual in TRIED:
        keeps_chunks = schedules.traits(name).chunks is None and job.pipeline.chunks > 1
        yield from _schedule(scenario, job, name, job.pipeline.chunks if keeps_chunks else usual)


def _schedule(scenario: Scenario, job: Job, name: str, chunks: int) -> Iterator[Change]:
    now, spec = job.pipeline, scenario.spec.pipeline
    if job.parallel.pp == 1 or (name, chunks) == (now.schedule, now.chunks):
        return
    values: dict[str, Any] = {"pipeline.schedule": name, "pipeline.chunks": chunks}
    # What a group means differs between schedules, and another number of chunks needs another layout: the usual ones.
    stale = {"group": spec.group, "layout": spec.layout if chunks != now.chunks else None}
    values |= {f"pipeline.{key}": None for key, value in stale.items() if value is not None}
    words = f", {chunks} chunks" if chunks > 1 else ", without chunks" if now.chunks > 1 else ""
    yield Change(kind="schedule", title=f"schedule {name}{words}", values=values)
