"""
What a rank holds of the model between passes: weights, gradients and the optimizer's states, and what its step adds.

All follows from four things: what the framework keeps (``frameworks/layout.py``), the precision, the optimizer's rules
(``optimizers/``), and between how many ranks each part is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainsim.contracts.job import Job
from trainsim.models.lora import adapter_tensors
from trainsim.models.matrices import Tensors, expert_tensors, joined, tensors
from trainsim.models.shapes import EIGHT_BITS, LOW_PRECISION
from trainsim.sharding.parameter_groups import Held, ParameterGroup, shared
from trainsim.sharding.zero3 import sub_group

FULL = 4.0  # bytes of a number in fp32


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


def states(job: Job, held: Sequence[Held], *, versions: int = 1) -> States:
    """The states of a rank that holds some groups of parameters, each shared in its way.

    *versions* of the weights are kept where a schedule does not flush.
    """
    trained = [held_group for held_group in held if held_group.group.trained]
    return States(
        weights=_weights(job, held) * versions,
        gradients=_gradients(job, trained),
        optimizer=shared((_optimizer(job, group), shards.optimizer) for group, shards in trained),
        step_transient=_step(job, trained),
    )


def owned(held: Iterable[Held]) -> float:
    """Trained parameters of which this rank has the states of the optimizer."""
    return shared((group.total, shards.optimizer) for group, shards in held if group.trained)


def whole(job: Job) -> Tensors:
    """What is trained of all layers with embedding and head, cut over tensor parallelism."""
    if job.model.lora is not None:
        return adapter_tensors(job.model.kinds, job.parallel.tp)
    return _base(job)


def _base(job: Job) -> Tensors:
    """All tensors but adapters."""
    tp, kinds = job.parallel.tp, job.model.kinds
    others = tensors(job.model, tp, kinds, embedding=True, head=True, vocab=job.padded_vocab)
    return joined((others, expert_tensors(kinds, tp))) if job.model.has_experts else others


def _weights(job: Job, held: Sequence[Held]) -> float:
    """Stored weights; frozen ones as the scenario says, else in no more than 16 bits but under autocast. In fp8 with
    the copies of linear layers."""
    layout, low = job.framework.memory.states, job.training.number_bytes
    stored = FULL if layout.weights == "fp32" else low
    frozen = stored if job.training.autocast else low
    nbytes = shared(
        (group.stored or (stored if group.trained else frozen) * group.total, shards.weights) for group, shards in held
    )
    if layout.cast_copy and stored > low:
        nbytes += low * sum(group.total for group, shards in held if group.trained and shards.weights == 1)
    if job.training.precision in EIGHT_BITS and layout.fp8_copies:
        copies = layout.fp8_copies * LOW_PRECISION[job.training.precision] * _linear(job, held)
        nbytes += shared((copies * total, ranks) for total, ranks in _by_weights(held))
    return nbytes


def _by_weights(held: Sequence[Held]) -> Iterator[tuple[int, int]]:
    """(Parameters, ranks that share their weights), groups that are shared alike in one."""
    for ranks in dict.fromkeys(shards.weights for _, shards in held):
        yield sum(group.total for group, shards in held if shards.weights == ranks), ranks


def _linear(job: Job, held: Sequence[Held]) -> float:
    """The part of the parameters that linear layers have; adapters and what they are put on have that of the model."""
    every = joined(tuple(shapes(job, group) for group, _ in held)) if _all_trained(held) else _base(job)
    return sum(m.elements for m in every.matrices) / max(1, every.total)


def _all_trained(held: Sequence[Held]) -> bool:
    return all(group.trained or not group.total for group, _ in held)


def shapes(job: Job, group: ParameterGroup) -> Tensors:
    """The shapes of a group's tensors, or those of the whole model."""
    return group.tensors or whole(job)


def _gradients(job: Job, trained: Sequence[Held]) -> float:
    layout, low, summed = job.framework.memory.states, job.training.number_bytes, job.sum_bytes
    if job.training.optimizer_in_backward:
        return 0.0  # each is dropped as soon as it was used
    nbytes = shared((summed * group.total, shards.gradients) for group, shards in trained)
    if layout.beside == "buckets" or (layout.beside == "low" and low < summed):
        nbytes += (summed if layout.beside == "buckets" else low) * sum(group.total for group, _ in trained)
    if layout.sums_apart and job.training.microbatches > 1:
        apart = (
            held_group for held_group in trained if held_group.shards.gradients > 1 and held_group.shards.weights == 1
        )
        nbytes += shared((summed * group.total, shards.gradients) for group, shards in apart)
    return nbytes


def _optimizer(job: Job, group: ParameterGroup) -> float:
    """States of a group before they are shared, with master copies and resident copies of gradients."""
    layout, low, tensors = job.framework.memory.states, job.training.number_bytes, shapes(job, group)
    share = group.total / tensors.total if tensors.total else 0.0
    nbytes = job.training.optimizer.state_bytes(tensors, like=state_length(job)) * share
    if layout.weights == "training" and layout.master and low < FULL:
        nbytes += FULL * group.total
    if layout.gradient_cast == "resident" and job.sum_bytes < FULL:
        nbytes += FULL * group.total
    return nbytes


def state_length(job: Job) -> float:
    """How long a number is that an optimizer makes like its parameters, over one of fp32."""
    layout = job.framework.memory.states
    return job.training.number_bytes / FULL if layout.weights == "training" and not layout.master else 1.0


def _step(job: Job, trained: Sequence[Held]) -> float:
    """Temporaries of the update: the fp32 copy of 16-bit gradients, and what whole-model operations leave behind."""
    layout, updated = job.framework.memory.states, owned(trained)
    nbytes = 0.0
    if job.training.optimizer_in_backward:
        return nbytes
    if layout.gradient_cast == "step" and job.sum_bytes < FULL:
        limit = sub_group(job) if any(shards.weights > 1 for _, shards in trained) else 0.0
        nbytes += FULL * (min(updated, limit) if limit else updated)
    if layout.foreach:
        nbytes += state_length(job) * job.training.optimizer.foreach_bytes * updated
    return nbytes
