"""What a network that is not whole costs a job: what was rerouted, who slows down, and the step without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainsim.analysis.lanes import Lanes
from trainsim.analysis.paged import simulate_paged
from trainsim.contracts.job import Flap, Job
from trainsim.contracts.system import Communicator, Floats, Pattern
from trainsim.hardware import faults
from trainsim.simulate import Simulation

SLOWER = 1e-6
"""A slowdown by less is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowedCollective:
    """A collective of a communicator of which ``groups`` groups slow down: the worst by the factor ``slowdown``.

    It is that of large buffers when all groups of the communicator are at it at once. ``ranks`` are those of the worst
    group.
    """

    communicator: str
    operation: str
    slowdown: float
    groups: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """``rerouted`` says in sentences what goes other ways, ``slowed`` which collectives suffer, worst first; the step
    takes ``step_time_s``, and ``before_s`` on the whole network (seconds)."""

    rerouted: tuple[str, ...]
    slowed: tuple[SlowedCollective, ...]
    before_s: float
    step_time_s: float


def network_faults(simulation: Simulation, step_time: float) -> NetworkFaults | None:
    """What the faults of a run cost; None where nothing is out of service or flaps. The job is run once more without
    them."""
    job = simulation.job
    flapping = any(isinstance(what, Flap) for what in job.what_if)
    if faults.is_whole(job.cluster) and not flapping:
        return None
    before = simulate_paged(without_faults(job))
    slowed = sorted(_slowed(before, simulation), key=lambda one: (-one.slowdown, one.communicator, one.operation))
    return NetworkFaults(
        rerouted=faults.rerouted(job.cluster),
        slowed=tuple(slowed),
        before_s=Lanes(trace=before.trace).step,
        step_time_s=step_time,
    )


def too_late(job: Job, duration: float) -> tuple[str, ...]:
    """In words, the flaps that begin when a run of so many seconds is over, and so change nothing."""
    flaps = (what for what in job.what_if if isinstance(what, Flap) and what.since >= duration)
    return tuple(
        f"what_if: {' and '.join(flap.links)} flaps from {flap.since:g} s on, after the end of the run at "
        f"{duration:.3g} s: it has no effect. An earlier flap, or more steps (simulation.steps), would."
        for flap in flaps
    )


def without_faults(job: Job) -> Job:
    """*job* on a whole network on which nothing flaps."""
    kept = tuple(what for what in job.what_if if not isinstance(what, Flap))
    return replace(job, cluster=faults.whole(job.cluster), what_if=kept)


def _slowed(before: Simulation, after: Simulation) -> Iterator[SlowedCollective]:
    links = after.job.cluster.links
    whole = before.plan.system.communicators
    for peers, communicator in after.plan.system.communicators.items():
        if communicator.is_message:
            continue
        for operation, pattern in communicator.patterns.items():
            factor = _rate(whole[peers].patterns[operation], links) / _rate(pattern, links)
            worst = int(factor.argmax())
            if factor[worst] > 1 + SLOWER:
                yield SlowedCollective(
                    communicator=str(peers),
                    operation=operation,
                    slowdown=float(factor[worst]),
                    groups=int((factor > 1 + SLOWER).sum()),
                    ranks=_members(communicator, worst),
                )


def _rate(pattern: Pattern, links: int) -> Floats:
    """Bytes/s of each group when all of them are at it at once."""
    on = (pattern.use_resource < links) & ~pattern.use_hold
    group, link, amount = pattern.use_group[on], pattern.use_resource[on], pattern.use_amount[on]
    asked = np.bincount(link, amount, minlength=links)
    crowd = np.ones(len(pattern.bandwidth))
    np.maximum.at(crowd, group, asked[link])
    return np.asarray(pattern.bandwidth / crowd)


def _members(communicator: Communicator, group: int) -> tuple[int, ...]:
    return tuple(np.flatnonzero(communicator.group_of[0] == group).tolist())
