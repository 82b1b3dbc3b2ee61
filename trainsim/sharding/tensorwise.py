"""
A model on one rank as DeepSpeed sees it: tensors, the calls of its modules, and the parts of a pass to which they
belong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainsim.job import Job
from trainsim.model.calls import Call, calls, modules, ready_order
from trainsim.model.tensors import embedding_tensors, layer_tensors
from trainsim.model.transformer import Transformer
from trainsim.sharding.bucketing import ipg_cuts


@dataclass(frozen=True, slots=True)
class Whole:
    """All tensors of a model that is not cut into stages.

    ``sizes`` are elements in order of registration, ``matrix`` tells which have two dimensions, ``part`` the part of a
    pass that each belongs to, ``ready`` the tensors in the order of their gradients. ``trace`` are the calls of a
    forward and a backward, ``at`` the part of each.
    """

    sizes: tuple[int, ...]
    matrix: tuple[bool, ...]
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

    def of_part(self, part: int) -> int:
        """Elements of the tensors of a part."""
        return sum(size for size, p in zip(self.sizes, self.part, strict=True) if p == part)


def whole(job: Job) -> Whole:
    """The tensors of *job*'s model on one rank."""
    return _whole(job.model, job.parallel.tp, job.padded_vocab, job.training.recompute == "full")


def ipg_buckets(one: Whole, bucket: float) -> Iterator[tuple[tuple[int, ...], int]]:
    """DeepSpeed's buckets of *bucket* elements: (tensors, the part whose gradients show that it is full)."""
    for cut in ipg_cuts([one.sizes[t] for t in one.ready], bucket=int(bucket)):
        tensors = one.ready[cut.last + 1 - cut.tensors : cut.last + 1]
        following = cut.last + 1
        yield tensors, one.part[one.ready[following]] if following < len(one.ready) else one.last


@lru_cache(maxsize=64)
def _whole(model: Transformer, tp: int, padded_vocab: int, recompute: bool) -> Whole:
    found = modules(model, tp, padded_vocab=padded_vocab)
    first, layer = len(embedding_tensors(model, tp, padded_vocab=padded_vocab)), len(layer_tensors(model, tp))
    part = tuple(_part(t, first, layer, model.layers) for t in range(len(found.tensors)))
    trace = calls(found.root, recompute=recompute)
    return Whole(
        sizes=found.sizes,
        matrix=tuple(t.name == "weight" and "norm" not in t.module for t in found.tensors),
        part=part,
        ready=ready_order(found.root),
        trace=trace,
        at=_parts_of_calls(trace, part),
    )


def _part(tensor: int, first: int, layer: int, layers: int) -> int:
    if tensor < first:
        return layers + 1
    return max(0, layers - (tensor - first) // layer)


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
        found = part[call.parameters[0]] if call.parameters else None
        if found is not None and found not in (0, top):
            seen = True
        out.append(0 if found == top and seen != (k >= backward) else found)
    following = 0 if backward == len(trace) else top
    for k in range(len(out) - 1, -1, -1):
        if k == backward - 1 and out[k] is None:
            following = 0
        following = out[k] = following if out[k] is None else out[k]  # type: ignore[assignment]
    return tuple(p for p in out if p is not None)
