"""From a job to its trace: lower, fold, run. The closed form beside it says what to expect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from trainsim.contracts.exact import TICK, longest, tick_for, ticks
from trainsim.contracts.excerpt import excerpt
from trainsim.contracts.instructions import Program
from trainsim.contracts.job import Delay, Job, Slow
from trainsim.contracts.system import Ints, System
from trainsim.contracts.trace import Trace
from trainsim.engine import run
from trainsim.errors import Deadlock
from trainsim.fold import Quotient, fold, prune, unfolded
from trainsim.program.estimate import Estimate, estimate
from trainsim.program.lower import Lowered, lower
from trainsim.program.merging import START, merged, started
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


def simulate(job: Job, phase: Callable[[str], None] = lambda name: None, *, tick: float = TICK) -> Simulation:
    """Run *job*; *phase* is told what is being done. Times are multiples of *tick* at the least.

    Raises InvalidPlan or InvalidProgram before, Deadlock during the run.
    """
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
        trace = _run_exactly(quotient, max(tick, tick_for(expected_duration(job, expected))))
    return Simulation(job=job, plan=plan, trace=trace, estimate=expected, wall_s=time.perf_counter() - began)


@dataclass(frozen=True, kw_only=True, eq=False)
class Together:
    """Several jobs at one time on one machine: the system of all of them, its trace, and what each went through.

    The trace of a job begins when it starts, at one of ``starts`` (seconds, whole ticks).
    """

    system: System
    trace: Trace
    starts: tuple[float, ...]
    simulations: tuple[Simulation, ...]


def simulate_together(
    some: Sequence[Simulation], starts: Sequence[float], phase: Callable[[str], None] = lambda name: None
) -> Together:
    """Run the jobs of *some* runs, which are of jobs on different GPUs of one cluster, at one time, each from its start
    on (seconds). Raises Deadlock."""
    began = time.perf_counter()
    tick = max(one.trace.tick for one in some)
    starts = [ticks(start, tick) for start in starts]
    systems = [started(one.plan.system, start) for one, start in zip(some, starts, strict=True)]
    phase("folding the jobs together")
    system = merged(systems, some[0].job.cluster.links)
    pruned = prune(system)
    quotient = fold(pruned) if all(one.job.fold for one in some) else unfolded(pruned)
    phase("simulating the jobs together")
    longest_run = max(start + one.trace.duration for one, start in zip(some, starts, strict=True))
    trace = _run_exactly(quotient, max(tick, tick_for(longest_run)))
    out, first, wall_s = [], 0, time.perf_counter() - began
    for one, own, start in zip(some, systems, starts, strict=True):
        part = excerpt(trace, first, own.ranks, start=start, skipped=START)
        out.append(replace(one, trace=part, wall_s=wall_s))
        first += own.ranks
    return Together(system=system, trace=trace, starts=tuple(starts), simulations=tuple(out))


def _run_exactly(quotient: Quotient, tick: float) -> Trace:
    """The trace of a run whose times are multiples of *tick*, or of a coarser one if it takes so long."""
    trace = run(quotient, tick=tick)
    while trace.duration >= longest(trace.tick):  # so far from what was expected that its times were not exact
        trace = run(quotient, tick=tick_for(trace.duration))
    return trace


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
