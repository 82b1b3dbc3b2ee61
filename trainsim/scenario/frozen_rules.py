"""What frozen weights in a type of their own go together with, and what is worth saying of them."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.errors import NotBuilt
from trainsim.models.frozen import quantised, stored_as
from trainsim.models.shapes import LOW_PRECISION
from trainsim.models.weight_types import WeightType
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.sharding import strategies

KEY = "model.lora.base_dtype"


def check_frozen(context: Context, job: Job) -> None:
    """Raise for the first rule that is broken; note how frozen weights are stored, and what that means."""
    stored = stored_as(job.model.kind)
    if stored is None:
        return
    for fault in _broken(job, stored):
        context.require(fault, NotBuilt)
    context.derived(KEY, stored.name, _note(job, stored))


def _broken(job: Job, stored: WeightType) -> Iterator[Fault]:
    training, strategy = job.training, strategies[job.sharding.strategy]
    differs = stored.bits != 8 * training.number_bytes
    if training.precision in LOW_PRECISION and differs:
        reason = f"{training.precision} GEMMs cast weights from 16 bits; precision: bf16 would work"
        yield Fault(KEY, f"not simulated with precision {training.precision}: {reason}")
    if not stored.quantised and stored.bits < 8 * training.number_bytes:
        reason = f"passes in {training.precision} use weights in {training.precision}"
        yield Fault(KEY, f"{reason}; leave it out, or precision: {stored.name} would work")
    if strategy.shares_parameters and not strategy.mixed_weights and differs:
        able = [name for name in strategies if not strategies[name].shares_parameters or strategies[name].mixed_weights]
        reason = f"{job.sharding.strategy} gathers all parameters in one type"
        yield Fault(KEY, f"not simulated: {reason}; sharding.strategy: {', '.join(able)} would work, or leave it out")
    if job.sharding.offload.parameters != "none" and differs:
        yield Fault(KEY, "not simulated with offloaded parameters; sharding.offload.parameters: none would work")
    if training.rollout is not None and stored.quantised:
        yield Fault(KEY, "not simulated with a rollout, whose engine would have to dequantise them too; leave it out")


def _note(job: Job, stored: WeightType) -> str:
    model, low = job.model, f"{8 * job.training.number_bytes} bits"
    if stored.quantised:
        few = quantised(model.kinds, 1)
        return (
            f"{few.elements} parameters of linear layers in {8 * few.nbytes / few.elements:.3f} bits each, converted "
            f"to {low} for each use; embedding, head and norms in {low}"
        )
    if stored.bits == 8 * job.training.number_bytes:
        return "as the passes use them"
    if strategies[job.sharding.strategy].shares_parameters:
        return f"shards have {stored.bits:g} bits and are gathered in {low}"
    return f"cast to {low} in each forward pass, whose copies stay until the backward"
