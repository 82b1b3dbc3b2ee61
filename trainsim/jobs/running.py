"""Several jobs at one time: how many steps each does, alone and together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from trainsim.analysis.bubble import step_ends
from trainsim.analysis.lanes import Lanes
from trainsim.analysis.paged import simulate_paged
from trainsim.contracts.job import Job
from trainsim.contracts.trace import Trace
from trainsim.errors import NotBuilt
from trainsim.jobs.jobs_file import read_jobs
from trainsim.jobs.outcome import JobOutcome, JobsResult
from trainsim.jobs.placing import PlacedJob, placed_jobs
from trainsim.jobs.shared_links import disturbances
from trainsim.result.result import Result
from trainsim.schedules.lookup import facts
from trainsim.simulate import Simulation, Together, simulate, simulate_together

MOST_STEPS = 1000
"""Steps of a job that are simulated at most while others run."""


def run_jobs(
    spec: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    fold: bool = True,
    phase: Callable[[str], None] = lambda name: None,
) -> JobsResult:
    """Simulate the jobs of a file (its path, the name of one that ships, or what it says as a mapping), each alone and
    all together on the links of the one machine.

    *changes* are other values by dotted path, such as ``cluster.oversubscription`` or ``jobs.left.start``. *fold* off
    simulates every rank. *phase* is told what is being done.

    Every job does its own steps; who is through with them goes on with more until the last one is through with its own.
    Raises ScenarioError and what resolving and running each scenario raises.
    """
    file = read_jobs(spec, changes or {})
    phase("placing the jobs")
    jobs = placed_jobs(file)
    if not fold:
        jobs = [replace(one, job=replace(one.job, fold=False)) for one in jobs]
    alone = [simulate_paged(one.job, partial(_alone, phase, one.name)) for one in jobs]
    together, runs = _covered(jobs, alone, phase)
    until = max(start + _end(one, run.trace) for one, run, start in _each(jobs, together))
    phase("each alone, for as many steps")
    tick = together.trace.tick
    alone = [_alone_again(one, run, tick) for one, run in zip(alone, runs, strict=True)]
    return JobsResult(
        name=file.name,
        jobs=tuple(
            JobOutcome(
                name=one.name,
                nodes=one.nodes,
                start_s=start,
                steps=one.steps,
                alone_s=_end(one, by_itself.trace) / one.steps,
                together_s=_end(one, run.trace) / one.steps,
                alone=_result(one, by_itself),
                together=_result(one, run),
            )
            for (one, run, start), by_itself in zip(_each(jobs, together), alone, strict=True)
        ),
        disturbances=disturbances([one.name for one in jobs], together, until),
        duration=until,
    )


def _alone(phase: Callable[[str], None], name: str, words: str) -> None:
    phase(f"{name} alone, {words}")


def _each(jobs: Sequence[PlacedJob], together: Together) -> list[tuple[PlacedJob, Simulation, float]]:
    return list(zip(jobs, together.simulations, together.starts, strict=True))


def _covered(
    jobs: Sequence[PlacedJob], alone: Sequence[Simulation], phase: Callable[[str], None]
) -> tuple[Together, list[Simulation]]:
    """All jobs at one time, each with so many steps that none ends before the last is through with its own; and the
    runs of as many steps alone that this was made of."""
    last = max(one.start + run.trace.duration for one, run in zip(jobs, alone, strict=True))
    runs = [_longer(one, run, last - one.start) for one, run in zip(jobs, alone, strict=True)]
    while True:
        together = simulate_together(runs, [one.start for one in jobs], phase)
        each = _each(jobs, together)
        last = max(start + _end(one, run.trace) for one, run, start in each)
        short = [start + run.trace.duration < last for _, run, start in each]
        if not any(short):
            return together, runs
        runs = [
            _longer(one, run, last - start, now=now.trace.duration) if more else run
            for more, run, (one, now, start) in zip(short, runs, each, strict=True)
        ]


def _longer(one: PlacedJob, run: Simulation, seconds: float, now: float | None = None) -> Simulation:
    """The run of a job alone with so many steps that it takes *seconds*, if *run* took *now* of them."""
    steps = run.job.steps
    needed = max(steps, ceil(steps * seconds / (now or run.trace.duration) * (1 - 1e-9)))
    if needed == steps:
        return run
    if needed > MOST_STEPS:
        raise NotBuilt(
            f"job {one.name} would run {needed:,} steps while another job runs its own, more than {MOST_STEPS:,}; a "
            "later start, more steps of its own or fewer of the other would reduce this"
        )
    return simulate(replace(run.job, steps=needed))


def _alone_again(alone: Simulation, run: Simulation, tick: float) -> Simulation:
    """The run alone of as many steps as together, in times as fine as there."""
    if run.trace.tick == tick:
        return run
    return simulate(run.job, tick=tick)


def _end(one: PlacedJob, trace: Trace) -> float:
    """When a job is through with its own steps, seconds after its start."""
    lanes = Lanes(trace=trace)
    if facts(one.job.pipeline.schedule).asynchronous:
        return _end_of_passes(lanes, one.job)
    return trace.duration if lanes.steps == one.steps else float(step_ends(lanes)[one.steps - 1])


def _end_of_passes(lanes: Lanes, job: Job) -> float:
    """The same where nothing flushes the pipeline between steps: when the last pass of its microbatches is over."""
    microbatches, end = job.steps * job.training.microbatches, 0.0
    for lane in lanes.compute:
        own = lanes.trace.tasks[lane.number].microbatch < microbatches
        if own.all():
            return lanes.duration
        end = max(end, float(np.max(lanes.trace.task_times(lane.number)[1][own], initial=0.0)))
    return end


def _result(one: PlacedJob, run: Simulation) -> Result:
    scenario = one.scenario.resolved
    scenario["simulation"] = {**scenario["simulation"], "steps": run.job.steps}
    return Result(simulation=run, scenario=scenario)
