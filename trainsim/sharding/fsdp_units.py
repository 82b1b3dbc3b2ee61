"""
What fully sharded data parallelism gathers and reduces together: some layers, the model, or what belongs to no layer.
Experts that other ranks hold than the layer around them are units of their own, over their own ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.contracts.instructions import Hold
from trainsim.contracts.job import Job
from trainsim.models.frozen import Quantised, quantised
from trainsim.models.layer_kind import counted, layer_parameters
from trainsim.sharding.flights import PassMoment
from trainsim.sharding.fsdp_options import UNITS, gathered_bytes
from trainsim.sharding.tensorwise import Whole, whole


class FsdpUnit(NamedTuple):
    """Parameters that are gathered together, from part ``first`` of a forward to part ``last``, and those of them whose
    gradients are reduced together.

    ``nbytes`` are those of all, gathered; ``gradients`` says at which part of a backward how many gradients are made.
    One that ``stays`` is not given back between forward and backward. ``experts``: those of a layer that other ranks
    hold than the rest of it.
    """

    name: str
    first: int
    last: int
    elements: int
    nbytes: float
    gradients: tuple[tuple[int, int], ...]
    stays: bool = False
    experts: bool = False

    @property
    def trained(self) -> int:
        """Elements of all gradients."""
        return sum(elements for _, elements in self.gradients)


def units(job: Job) -> list[FsdpUnit]:
    """The units of *job* in the order of a forward; the root, whose embedding comes first, leads.

    FSDP1 makes one flat parameter of a unit, so that frozen ones in it get gradients too if any is trained; adapters on
    quantised weights are wrapped apart from them.
    """
    held = _UnitShares.of(job)
    return [unit for names in _grouped(job, held.last) for unit in held.units(names)]


def _grouped(job: Job, top: int) -> list[tuple[str, tuple[int, ...]]]:
    """(Name, parts in the order of a forward) of each unit."""
    kind, layers = UNITS.of(job) or "layers", list(range(top - 1, 0, -1))
    if kind == "model":
        return [("model", (top, *layers, 0))]
    size = kind if isinstance(kind, int) else 1
    some = [tuple(layers[k : k + size]) for k in range(0, len(layers), size)]
    inner = [(f"unit {parts[0]}", parts) for parts in some]
    if kind == "layers_and_embeddings" and not job.model.tied_embeddings:
        return [("embedding", (top,)), *inner, ("head", (0,))]
    return [("root", (top, 0)), *inner]


@dataclass(frozen=True, slots=True)
class _UnitShares:
    """Elements by part of a pass: all, those that are trained, those of matrices in layers, and those that are gathered
    as they are stored."""

    job: Job
    whole_model: Whole
    held: Mapping[int, int]
    trained: Mapping[int, int]
    linear: Mapping[int, int]
    apart: Mapping[int, tuple[int, int]]
    quantised: Mapping[int, Quantised]

    @classmethod
    def of(cls, job: Job) -> _UnitShares:
        """Those of *job*, without experts that other ranks hold."""
        whole_model, apart = whole(job), _apart(job)
        tuned = job.model.lora is not None  # adapters are on no experts, so these are frozen

        def without(counts: Mapping[int, int], there: bool) -> dict[int, int]:
            return {part: count - apart.get(part, (0, 0))[0] * there for part, count in counts.items()}

        matrices = dict.fromkeys(range(whole_model.last + 1), 0)
        for tensor, (part, size) in enumerate(zip(whole_model.part, whole_model.sizes, strict=True)):
            is_adapter = tuned and whole_model.trained[tensor]
            matrices[part] += size * (whole_model.matrix[tensor] and 0 < part < whole_model.last and not is_adapter)
        return cls(
            job,
            whole_model,
            without(whole_model.held_by_part, True),
            without(whole_model.trained_by_part, not tuned),
            without(matrices, True),
            apart,
            _quantised(job, whole_model.last),
        )

    @property
    def last(self) -> int:
        return self.whole_model.last

    def units(self, named: tuple[str, tuple[int, ...]]) -> Iterator[FsdpUnit]:
        """The unit of some parts, and those of the experts in them."""
        name, parts = named
        elements, linear = (sum(of[part] for part in parts) for of in (self.held, self.linear))
        few = [self.quantised[part] for part in parts if part in self.quantised]
        packed = sum(some.elements for some in few)
        yield FsdpUnit(
            name,
            parts[0],
            parts[-1],
            elements,
            gathered_bytes(self.job, elements - packed, linear - packed) + sum(some.nbytes for some in few),
            tuple(self._gradients(parts)),
            stays=name in ("root", "model") or (name == "head" and self.job.framework.communication.fsdp != "fsdp1"),
        )
        for part in parts:
            here = self.apart.get(part, (0, 0))[1]
            if here:
                made = here * (self.job.model.lora is None)
                nbytes = gathered_bytes(self.job, here, here)
                yield FsdpUnit(f"experts {part}", part, part, here, nbytes, ((part, made),), experts=True)

    def _gradients(self, parts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(Part, elements) as a backward makes them; a head that is tied makes those of the embedding's matrix."""
        some = any(self.trained[part] for part in parts)
        apart = any(part in self.quantised for part in parts)
        flat = some and not apart and self.job.framework.communication.fsdp == "fsdp1"
        made = {part: (self.held if flat else self.trained)[part] for part in reversed(parts)}
        if self.job.model.tied_embeddings and {0, self.last} <= made.keys():
            made[0] += made.pop(self.last)
        yield from made.items()


def fresh_shards(job: Job, elements: Iterable[float]) -> float:
    """Bytes of a rank's gradients of so many *elements*, if the framework makes them anew in each step (``zero_grad``
    drops them) and keeps them here until all are there: updates in the backward pass take and drop their own."""
    if not job.framework.memory.states.fresh or job.sharding.offload.any or job.training.optimizer_in_backward:
        return 0.0
    return job.sum_bytes * sum(elements)


def made(job: Job, size: int, nbytes: float) -> Iterator[tuple[PassMoment, Hold]]:
    """Gradients of so many *nbytes* as the first reductions of a step make them, among *size* ranks."""
    shares = {unit: unit.trained / (job.parallel.edp if unit.experts else size) for unit in units(job)}
    for unit, share in shares.items():
        yield PassMoment(unit.first, after=True), Hold("gradients", nbytes * share / sum(shares.values()))


def _quantised(job: Job, top: int) -> dict[int, Quantised]:
    """Quantised matrices by part, where there are some."""
    of_kind = {kind: quantised([kind], job.parallel.tp) for kind in counted(job.model.kinds)}
    by_part = {top - 1 - k: of_kind[kind] for k, kind in enumerate(job.model.kinds)}
    return {part: some for part, some in by_part.items() if some.elements}


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
