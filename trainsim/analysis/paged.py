"""
Runs of jobs whose optimizer is in unified memory: what has no room beside everything else is known after a first run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import ceil

import numpy as np

from trainsim.analysis.lanes import Lanes
from trainsim.analysis.memory import memory
from trainsim.contracts.job import Job
from trainsim.errors import TrainsimError
from trainsim.program.paging import pageable
from trainsim.program.rank import RankPlan
from trainsim.simulate import Simulation, simulate


def simulate_paged(job: Job, phase: Callable[[str], None] = lambda name: None) -> Simulation:
    """Run *job*; where a rank holds more than its GPU has, again with so much of its paged states on the host."""
    simulation = simulate(job, phase)
    out = without_room(simulation) if job.training.optimizer.paged else {}
    return simulate(replace(job, paged_out=out), phase) if out else simulation


def without_room(simulation: Simulation) -> dict[int, float]:
    """Bytes of paged states that have no room on the fullest rank of each pipeline stage, by stage.

    There are none where the machine says nothing of its hosts.
    """
    job, lanes = simulation.job, Lanes(trace=simulation.trace)
    with suppress(TrainsimError):
        job.cluster.storage("host_out", np.arange(1))
        room = job.cluster.memory_per_gpu
        over = {stage.stage: stage.needed - room for stage in memory(lanes, room).per_stage}
        states = {stage: pageable(RankPlan(parts=simulation.plan.parts, rank=stage)) for stage in over}
        return {stage: min(float(ceil(nbytes) + 1), states[stage]) for stage, nbytes in over.items() if nbytes > 0}
    return {}
