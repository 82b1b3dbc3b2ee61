"""From a job to its trace: lower, fold, run. The closed form beside it says what to expect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trainsim.contracts.exact import longest, tick_for
from trainsim.contracts.instructions import Program
from trainsim.contracts.job import Delay, Job, Slow
from trainsim.contracts.system import Ints
from trainsim.contracts.trace import Trace
from trainsim.engine import run
from trainsim.errors import Deadlock
from trainsim.fold import fold, prune, unfolded
from trainsim.program.estimate import Estimate, estimate
from trainsim.program.lower import Lowered, lower
from trainsim.program.network import Network


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """A run: the job, its plan, what happened, and the closed-form estimate. ``wall_s`` is real time, seconds."""

    job: Job
    plan: Lowered
    trace: Trace
    estimate: Estimate
    wall_s: float

    @property
    def programs(self) -> tuple[Program, ...]:
        return self.plan.system.programs

    @property
    def network(self) -> Network:
        """Which ranks talk to which."""
        return self.plan.parts.network

    @property
    def program_of(self) -> Ints:
        return self.plan.system.program_of


def simulate(job: Job, phase: Callable[[str], None] = lambda name: None) -> Simulation:
    """Run *job*; *phase* is told what is being done. Raises InvalidPlan or InvalidProgram before, Deadlock during the
    run."""
    began = time.perf_counter()
    phase("planning")
    plan = lower(job)
    expected = estimate(plan.parts)
    if plan.rollout is not None:
        expected = expected.with_part("rollout", plan.rollout.exposed(expected.seconds))
    phase("folding")
    system = prune(plan.system)
    quotient = fold(system) if job.fold else unfolded(system)
    phase("simulating")
    with _told(job):
        trace = run(quotient, tick=tick_for(expected_duration(job, expected)))
        while trace.duration >= longest(trace.tick):  # so far from what was expected that its times were not exact
            trace = run(quotient, tick=tick_for(trace.duration))
    return Simulation(job=job, plan=plan, trace=trace, estimate=expected, wall_s=time.perf_counter() - began)


@contextmanager
def _told(job: Job) -> Iterator[None]:
    """Say of a deadlock whose order it is, and what would not deadlock."""
    try:
        yield
    except Deadlock as stuck:
        if job.pipeline.p2p != "blocking":
            raise
        raise Deadlock(
            f"pipeline.p2p = 'blocking': ranks that post messages in the order of {job.pipeline.schedule} wait for "
            f"each other; p2p: async would work, or schedule: 1f1b, gpipe, or interleaved-1f1b. {stuck.reason}:",
            stuck.waiting,
        ) from None


def expected_duration(job: Job, expected: Estimate) -> float:
    """Seconds that all steps may take together: the closed form with all that ``what_if`` adds to it."""
    stretched = max([1.0, *(max(w.factor, 1.0 / w.factor) for w in job.what_if if isinstance(w, Slow))])
    delays = sum(w.seconds for w in job.what_if if isinstance(w, Delay))
    return expected.seconds * stretched * job.steps + delays
