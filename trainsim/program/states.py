"""
What a rank holds of the model between passes: weights, gradients and the optimizer's states, and what its step adds.

All follows from four things: what the framework keeps (``frameworks/layout.py``), the precision, the optimizer's rules
(``optimizers/``), and between how many ranks each part is shared.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainsim.contracts.job import Job
from trainsim.models.lora import adapter_tensors
from trainsim.models.matrices import Tensors, tensors
from trainsim.sharding import Exchange

FULL, HALF = 4.0, 2.0  # bytes of a number in fp32, and in 16 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes on one rank: what is held between steps, and what the update needs above it for ``step_transient``.

    What comes and goes beside the passes (gathered weights, sums that are not reduced yet, buckets) is the strategy's.
    """

    weights: float
    gradients: float
    optimizer: float
    step_transient: float = 0.0

    @property
    def resident(self) -> float:
        """What is held between steps."""
        return self.weights + self.gradients + self.optimizer


def states(
    job: Job, *, parameters: int, trainable: int, exchange: Exchange, held: Tensors | None = None, versions: int = 1
) -> States:
    """The states of a rank with so many *parameters*, of which *trainable* are trained.

    *held* are the trained tensors, whose shapes some optimizers look at; None: they are like those of the whole model.
    *versions* of the weights are kept where a schedule does not flush.
    """
    held = held or whole(job)
    optimizer, shard = _optimizer(job, trainable, held), exchange.shard
    return States(
        weights=_weights(job, parameters, trainable, exchange, held) * versions,
        gradients=_gradients(job, trainable, exchange),
        optimizer=optimizer / shard,
        step_transient=_step(job, trainable, exchange),
    )


def whole(job: Job) -> Tensors:
    """What is trained of all layers with embedding and head, cut over tensor parallelism."""
    if job.model.lora is not None:
        return adapter_tensors(job.model.kinds, job.parallel.tp)
    return _base(job)


def _base(job: Job) -> Tensors:
    """All tensors but adapters."""
    return tensors(job.model, job.parallel.tp, job.model.kinds, embedding=True, head=True, vocab=job.padded_vocab)


def gradient_bytes(job: Job) -> float:
    """Bytes of a sum of gradients: the scenario's ``accumulation_dtype`` or the framework's."""
    dtype = job.training.accumulation_dtype or job.framework.memory.states.accumulation
    return FULL if dtype == "fp32" else HALF if dtype in ("fp16", "bf16") else job.training.number_bytes


def _weights(job: Job, parameters: int, trainable: int, exchange: Exchange, held: Tensors) -> float:
    """Stored weights; frozen ones are never kept in more than 16 bits. In fp8 with the copies of linear layers."""
    layout, low = job.framework.memory.states, job.training.number_bytes
    stored = FULL if layout.weights == "fp32" else low
    nbytes = (stored * trainable + low * (parameters - trainable)) / exchange.weights_shard
    if layout.cast_copy and stored > low and exchange.weights_shard == 1:
        nbytes += low * trainable
    if job.training.precision == "fp8" and layout.fp8_copies:
        every = held if trainable == parameters else _base(job)
        linear = sum(m.elements for m in every.matrices) / max(1, every.total)
        nbytes += layout.fp8_copies * linear * parameters / exchange.weights_shard
    return nbytes


def _gradients(job: Job, trainable: int, exchange: Exchange) -> float:
    layout, low, summed = job.framework.memory.states, job.training.number_bytes, gradient_bytes(job)
    nbytes = summed * trainable / exchange.gradients_shard
    if layout.beside == "buckets" or (layout.beside == "low" and low < summed):
        nbytes += (summed if layout.beside == "buckets" else low) * trainable
    apart = layout.sums_apart and exchange.gradients_shard > 1 and exchange.weights_shard == 1
    if apart and job.training.microbatches > 1:
        nbytes += summed * trainable / exchange.gradients_shard
    return nbytes


def _optimizer(job: Job, trainable: int, held: Tensors) -> float:
    """States of all trained parameters before they are shared, with master copies and resident copies of gradients."""
    layout, low = job.framework.memory.states, job.training.number_bytes
    share = trainable / held.total if held.total else 0.0
    nbytes = job.training.optimizer.state_bytes(held) * share
    if layout.weights == "training" and low < FULL:
        nbytes = nbytes + FULL * trainable if layout.master else nbytes * low / FULL
    if layout.gradient_cast == "resident" and gradient_bytes(job) < FULL:
        nbytes += FULL * trainable
    return nbytes


def _step(job: Job, trainable: int, exchange: Exchange) -> float:
    """Temporaries of the update: the fp32 copy of 16-bit gradients, and what whole-model operations leave behind."""
    layout, mine = job.framework.memory.states, trainable / exchange.shard
    nbytes = 0.0
    if layout.gradient_cast == "step" and gradient_bytes(job) < FULL:
        limit = layout.sub_group if layout.sub_group and exchange.weights_shard > 1 else mine
        nbytes += FULL * min(mine, limit)
    if layout.foreach:
        nbytes += job.training.optimizer.foreach_bytes * mine
    return nbytes
