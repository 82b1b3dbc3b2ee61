"""How many sequences a micro-batch and a step have, and how often gradients are summed: two of them give the third."""

from __future__ import annotations

from typing import NamedTuple

from trainsim.contracts.job import Parallel
from trainsim.scenario import checks
from trainsim.scenario.context import Context

MICROBATCHES_PER_STAGE = 4  # where the scenario names no global batch


class Batches(NamedTuple):
    """Sequences per micro-batch and replica, sequences per step, and micro-batches per step and replica."""

    micro_batch: int
    global_batch: int
    microbatches: int


def resolve_batches(context: Context, parallel: Parallel) -> Batches:
    """The batches of a scenario: micro_batch x dp x gradient_accumulation = global_batch.

    Raises InvalidPlan for numbers that do not divide or multiply out.
    """
    spec, dp = context.spec.training, parallel.dp
    micro_batch, accumulation, batch = spec.micro_batch, spec.gradient_accumulation, spec.global_batch
    if accumulation is not None:
        return _accumulated(context, dp, accumulation)
    micro_batch = micro_batch or 1
    if batch is None:
        accumulation = MICROBATCHES_PER_STAGE * parallel.pp if parallel.pp > 1 else 1
        batch = micro_batch * dp * accumulation
        reason = f"not given: micro_batch {micro_batch} x dp {dp} x {accumulation} micro-batches"
        context.derived("training.global_batch", batch, reason)
    context.require(checks.batches(global_batch=batch, micro_batch=micro_batch, dp=dp))
    microbatches = batch // (micro_batch * dp)
    reason = f"{batch} sequences / (micro_batch {micro_batch} x dp {dp})"
    context.derived("training.microbatches", microbatches, reason)
    return Batches(micro_batch, batch, microbatches)


def _accumulated(context: Context, dp: int, accumulation: int) -> Batches:
    """The batches where the scenario says how many micro-batches a step has."""
    micro_batch, batch = context.spec.training.micro_batch, context.spec.training.global_batch
    if micro_batch is None and batch is not None:
        context.require(checks.micro_batches(global_batch=batch, accumulation=accumulation, dp=dp))
        micro_batch = batch // (dp * accumulation)
        reason = f"{batch} sequences / (dp {dp} x gradient_accumulation {accumulation})"
        context.derived("training.micro_batch", micro_batch, reason)
    micro_batch = micro_batch or 1
    if batch is None:
        batch = micro_batch * dp * accumulation
        reason = f"micro_batch {micro_batch} x dp {dp} x gradient_accumulation {accumulation}"
        context.derived("training.global_batch", batch, reason)
    fault = checks.accumulation(global_batch=batch, micro_batch=micro_batch, dp=dp, accumulation=accumulation)
    context.require(fault)
    return Batches(micro_batch, batch, accumulation)
