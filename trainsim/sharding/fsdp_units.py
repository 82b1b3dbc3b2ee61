"""
What fully sharded data parallelism gathers and reduces together: a transformer block, and the rest as the root. Experts
that other ranks hold than the layer around them are units of their own, over their own ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainsim.contracts.instructions import Hold
from trainsim.contracts.job import Job
from trainsim.models.frozen import Quantised, quantised
from trainsim.models.layer_kind import counted, layer_parameters
from trainsim.sharding.flights import PassMoment
from trainsim.sharding.tensorwise import whole


class FsdpUnit(NamedTuple):
    """Parameters that are gathered together, from part ``first`` of a forward to part ``last``, and those of them whose
    gradients are reduced together. ``experts``: those of a layer that other ranks hold than the rest of it;
    ``quantised``: those that are gathered as they are stored."""

    first: int
    last: int
    elements: int
    trained: int
    experts: bool = False
    quantised: Quantised = Quantised()

    @property
    def root(self) -> bool:
        """The unit of what belongs to no layer."""
        return self.first != self.last

    @property
    def name(self) -> str:
        """``root``, ``unit 3`` or ``experts 3``."""
        if self.experts:
            return f"experts {self.first}"
        return "root" if self.root else f"unit {self.first}"


def units(job: Job) -> list[FsdpUnit]:
    """The root, whose embedding comes first and whose head comes last, and the layers in forward order.

    FSDP1 makes one flat parameter of a unit, so that frozen ones in it get gradients too if any is trained; adapters on
    quantised weights are wrapped apart from them.
    """
    whole_model = whole(job)
    apart = _apart(job)
    tuned = job.model.lora is not None  # adapters are on no experts, so these are frozen
    held, trained = (
        {part: count - apart.get(part, (0, 0))[0] * trains for part, count in counts.items()}
        for counts, trains in ((whole_model.held_by_part, True), (whole_model.trained_by_part, not tuned))
    )

    def unit(first: int, last: int) -> FsdpUnit:
        unit_parts = {first, last}
        elements, some = sum(held[p] for p in unit_parts), sum(trained[p] for p in unit_parts)
        flat = job.framework.communication.fsdp == "fsdp1"
        few = of_kind[job.model.kinds[whole_model.last - 1 - first]] if first == last else Quantised()
        whole_unit = some and flat and not few.elements
        return FsdpUnit(first, last, elements, elements if whole_unit else some, quantised=few)

    of_kind = {kind: quantised([kind], job.parallel.tp) for kind in counted(job.model.kinds)}
    layers = (unit(k, k) for k in range(whole_model.last - 1, 0, -1))
    experts = {k: FsdpUnit(k, k, here, here * (not tuned), experts=True) for k, (_, here) in apart.items() if here}
    return [unit(whole_model.last, 0), *(u for layer in layers for u in (layer, experts.get(layer.first)) if u)]


def fresh_shards(job: Job, elements: Iterable[float]) -> float:
    """Bytes of a rank's gradients of so many *elements*, if the framework makes them anew in each step (``zero_grad``
    drops them) and keeps them here."""
    if not job.framework.memory.states.fresh or job.sharding.offload.any:
        return 0.0
    return job.sum_bytes * sum(elements)


def made(job: Job, size: int, nbytes: float) -> Iterator[tuple[PassMoment, Hold]]:
    """Gradients of so many *nbytes* as the first reductions of a step make them, among *size* ranks."""
    shares = {unit: unit.trained / (job.parallel.edp if unit.experts else size) for unit in units(job)}
    for unit, share in shares.items():
        yield PassMoment(unit.first, after=True), Hold("gradients", nbytes * share / sum(shares.values()))


def _apart(job: Job) -> dict[int, tuple[int, int]]:
    """Parameters of experts that other ranks hold than the layers around them, by part: of all, and of this rank's."""
    if not job.experts_apart:
        return {}
    degrees, layers = job.parallel, job.model.layers
    return {
        layers - k: (
            layer_parameters(kind, degrees.tp).experts,
            layer_parameters(kind, degrees.tp, ep=degrees.ep, etp=degrees.etp).experts,
        )
        for k, kind in enumerate(job.model.kinds)
    }
