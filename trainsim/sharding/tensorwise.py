"""
A model on one rank as DeepSpeed sees it: tensors, the calls of its modules, and the parts of a pass to which they
belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from trainsim.contracts.job import Job
from trainsim.models.calls import Call, Module, calls, modules, ready_order
from trainsim.models.layer_kind import counted
from trainsim.models.lora import adapter_tensors
from trainsim.models.tensors import embedding_tensors, layer_tensors
from trainsim.models.transformer import Transformer
from trainsim.sharding.bucketing import ipg_cuts


@dataclass(frozen=True, slots=True)
class Whole:
    """All tensors of a model that is not cut into stages.

    ``sizes`` are elements in order of registration, ``matrix`` and ``trained`` tell which have two dimensions and which
    are not frozen, ``part`` the part of a pass that each belongs to, ``ready`` the trained ones in the order of their
    gradients. ``trace`` are the calls of a forward and a backward, ``at`` the part of each.
    """

    sizes: tuple[int, ...]
    matrix: tuple[bool, ...]
    trained: tuple[bool, ...]
    part: tuple[int, ...]
    ready: tuple[int, ...]
    trace: tuple[Call, ...]
    at: tuple[int, ...]

    @property
    def last(self) -> int:
        """The part that a backward ends with: the embedding."""
        return self.part[0]

    def elements(self, tensors: Sequence[int]) -> int:
        """Elements of some tensors together."""
        return sum(self.sizes[t] for t in tensors)

    @property
    def held_by_part(self) -> dict[int, int]:
        """Elements of the tensors of each part."""
        return self._by_part(sum, self.sizes)

    @property
    def trained_by_part(self) -> dict[int, int]:
        """Elements of the trained tensors of each part."""
        return self._by_part(sum, self._trained_sizes)

    @property
    def largest_by_part(self) -> dict[int, int]:
        """Elements of the largest trained tensor of each part."""
        return self._by_part(max, self._trained_sizes)

    @property
    def _trained_sizes(self) -> list[int]:
        return [size * trained for size, trained in zip(self.sizes, self.trained, strict=True)]

    def _by_part(self, together: Callable[[list[int]], int], sizes: Sequence[int]) -> dict[int, int]:
        of: dict[int, list[int]] = {part: [0] for part in range(self.last + 1)}
        for part, size in zip(self.part, sizes, strict=True):
            of[part].append(size)
        return {part: together(some) for part, some in of.items()}

    @property
    def trainable(self) -> int:
        """Elements of all trained tensors."""
        return self.elements(self.ready)


def whole(job: Job) -> Whole:
    """The tensors of *job*'s model on one rank."""
    again = tuple(job.training.recompute_of(k, k) == "full" for k in range(job.model.layers))
    return _whole(job.model, job.parallel.tp, job.padded_vocab, again)


def ipg_buckets(whole_model: Whole, bucket: float) -> Iterator[tuple[tuple[int, ...], int]]:
    """DeepSpeed's buckets of *bucket* elements: (tensors, the part whose gradients show that it is full)."""
    for cut in ipg_cuts([whole_model.sizes[t] for t in whole_model.ready], bucket=int(bucket)):
        tensors = whole_model.ready[cut.last + 1 - cut.tensors : cut.last + 1]
        following = cut.last + 1
        yield (
            tensors,
            whole_model.part[whole_model.ready[following]] if following < len(whole_model.ready) else whole_model.last,
        )


@lru_cache(maxsize=64)
def _whole(model: Transformer, tp: int, padded_vocab: int, recompute: tuple[bool, ...]) -> Whole:
    module_tensors = modules(model, tp, padded_vocab=padded_vocab)
    first, base, frozen = _count_embedding(model, tp, padded_vocab), len(module_tensors.tensors), model.lora is not None
    tensors_of = {kind: len(layer_tensors(kind, tp)) for kind in counted(model.kinds)}
    adapters_of = {kind: [m.elements for m in adapter_tensors([kind], tp).matrices] for kind in tensors_of}
    layers = [(model.layers - k, kind) for k, kind in enumerate(model.kinds)]  # (part, kind) in forward order
    inside = [part for part, kind in layers for _ in range(tensors_of[kind])]
    part = (
        *[model.layers + 1] * first,
        *inside,
        *[0] * (base - first - len(inside)),
        *(part for part, kind in layers for _ in adapters_of[kind]),
    )
    root = (
        _adapted(module_tensors.root, base, [len(adapters_of[kind]) for _, kind in layers])
        if frozen
        else module_tensors.root
    )
    trace = calls(root, recompute=recompute)
    return Whole(
        sizes=(*module_tensors.sizes, *(size for _, kind in layers for size in adapters_of[kind])),
        matrix=(
            *(t.is_matrix for t in module_tensors.tensors),
            *([True] * len(part[base:])),
        ),
        trained=tuple(not frozen or t >= base for t in range(len(part))),
        part=part,
        ready=tuple(t for t in ready_order(root) if not frozen or t >= base),
        trace=trace,
        at=_parts_of_calls(trace, part),
    )


def _count_embedding(model: Transformer, tp: int, padded_vocab: int) -> int:
    """Tensors in front of the layers."""
    return len(embedding_tensors(model, tp, padded_vocab=padded_vocab))


def _adapted(root: Module, start: int, counts: Sequence[int]) -> Module:
    """*root* with so many adapter matrices (*counts*) at the end of every layer, numbered from *start*."""
    numbers, adapters = count(start), iter(counts)

    def visit(module: Module) -> Module:
        if module.name == "layer":
            own = tuple(Module("adapter", (next(numbers),)) for _ in range(next(adapters)))
            return module._replace(children=(*module.children, *own))
        return module._replace(children=tuple(visit(child) for child in module.children))

    return visit(root)


def _parts_of_calls(trace: Sequence[Call], part: Sequence[int]) -> tuple[int, ...]:
    """The part of each call; a container's is that of the first module with parameters in it.

    A tied head uses the embedding's matrix at the other end of the pass: behind all layers in forward, ahead of them in
    backward.
    """
    top = part[0]
    out: list[int | None] = []
    backward = next((k for k, call in enumerate(trace) if not call.forward), len(trace))
    seen = False
    for k, call in enumerate(trace):
        seen = seen and k != backward
        part_of_call = part[call.parameters[0]] if call.parameters else None
        if part_of_call is not None and part_of_call not in (0, top):
            seen = True
        out.append(0 if part_of_call == top and seen != (k >= backward) else part_of_call)
    following = 0 if backward == len(trace) else top
    for k in range(len(out) - 1, -1, -1):
        if k == backward - 1 and out[k] is None:
            following = 0
        following = out[k] = following if out[k] is None else out[k]  # type: ignore[assignment]
    return tuple(p for p in out if p is not None)
