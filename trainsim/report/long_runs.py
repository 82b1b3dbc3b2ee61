"""What makes a run long, and what would make it shorter: a line for those who wait, or before they do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainsim.contracts.job import Job
from trainsim.program.jitter import slow_gpus

MANY = 64
"""Microbatches from which on fewer would show the same."""

MANY_ALONE = 512
"""GPUs that are simulated one by one from which on it is said before they are."""


def long_by_jitter(job: Job) -> str | None:
    """One line, before it begins, about a run that will be long since its GPUs draw differently; None for others. How
    long is known then: every GPU is a class of its own."""
    ranks = job.parallel.ranks
    if not job.jitter.any or ranks < MANY_ALONE:
        return None
    drawn = "links draw" if not (job.jitter.gpu or job.jitter.kernel) else "GPUs draw"
    classes = f"{'up to ' if drawn == 'links draw' else ''}{ranks:,} of {ranks:,} GPUs are simulated one by one"
    ways = [*_slowest_alone(job), *(["fewer replicas (cluster.nodes)"] if job.parallel.dp > 1 else []), *_ways(job)]
    return f"This will take long: {drawn} differently (simulation.jitter), so {classes}. Faster: {'; '.join(ways)}."


def _slowest_alone(job: Job) -> Iterator[str]:
    """The slowest GPU of the draw, which those that wait for it nearly go at the pace of."""
    if job.jitter.gpu and not (job.jitter.network or job.jitter.kernel) and job.fold:
        paces = slow_gpus(job)
        rank = int(np.argmax(paces))
        slow = f"{{slow: {{rank: {rank}, factor: {paces[rank]:.4f}}}}}"
        yield f"only the slowest GPU, with about the same step time: simulation.jitter: 0, and in what_if - {slow}"


def why_long(job: Job) -> str:
    """One line about what is simulated, and which fields of the scenario make it less."""
    steps = f" of {job.steps} steps each" if job.steps > 1 else ""
    passes = f"{job.training.microbatches:,} microbatches{steps} through {job.model.layers:,} layers"
    every = {"op": ", kernel by kernel", "layer": ", layer by layer"}.get(job.detail, "")
    alone = "" if job.fold and not job.jitter.any else f", on each of {job.parallel.ranks:,} ranks separately"
    return f"This will take a while: {passes}{every}{alone}. Faster: {'; '.join(_ways(job))}."


def _ways(job: Job) -> Iterator[str]:
    """What to change, the most helpful first."""
    if not job.fold:
        yield "without --no-fold (simulation.fold: true)"
    if job.jitter.any:
        yield "without simulation.jitter, since GPUs that draw differently are simulated one by one"
    if job.detail != "block":
        yield "simulation.detail: block"
    if job.steps > 1:
        yield "fewer simulation.steps"
    if job.training.microbatches > MANY or job.detail == "block":
        yield "fewer microbatches (a smaller training.global_batch, a larger training.micro_batch)"
