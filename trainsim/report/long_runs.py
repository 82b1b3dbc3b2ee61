"""What makes a run long, and what would make it shorter: a line for those who have been waiting."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job

MANY = 64
"""Microbatches from which on fewer would show the same."""


def why_long(job: Job) -> str:
    """One line about what is simulated, and which fields of the scenario make it less."""
    steps = f" of {job.steps} steps each" if job.steps > 1 else ""
    passes = f"{job.training.microbatches:,} microbatches{steps} through {job.model.layers:,} layers"
    every = {"op": ", kernel by kernel", "layer": ", layer by layer"}.get(job.detail, "")
    alone = "" if job.fold and not job.jitter.any else f", on each of {job.parallel.ranks:,} ranks by itself"
    return f"This takes a while: {passes}{every}{alone}. Quicker: {'; '.join(_ways(job))}."


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
