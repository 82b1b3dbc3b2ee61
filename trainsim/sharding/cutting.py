"""
Which gradients a bucket holds: a rule per framework, over the tensors of a chunk in the order of their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from trainsim.contracts.job import Job
from trainsim.registry import Registry
from trainsim.sharding import Bucket, Parts, bucket_size, buckets
from trainsim.sharding.bucketing import Cut, ddp_cuts, ipg_cuts
from trainsim.sharding.options import REDUCE_BUCKET
from trainsim.sharding.tensorwise import whole

Rule = Callable[[Job, int, int, Parts], Iterable[tuple[int, int]]]
"""(Job, stage, chunk, its parts) -> (elements, part after which they are complete) of each bucket."""

rules: Registry[Rule] = Registry("bucket rule")


def reductions(job: Job, stage: int, chunk: int, parts: Parts, *, operation: str) -> tuple[Bucket, ...]:
    """The buckets in which a chunk's gradients are reduced, as the framework cuts them."""
    rule, per_element = rules[job.framework.communication.bucket_rule], job.training.gradient_bytes
    return tuple(
        Bucket(operation, float(per_element * elements), after)
        for elements, after in rule(job, stage, chunk, parts)
        if elements
    )


@rules.register("megatron")
def megatron(job: Job, stage: int, chunk: int, parts: Parts) -> Iterator[tuple[int, int]]:
    """Megatron-LM: layer by layer until a bucket is full; one bucket where nothing overlaps."""
    size = bucket_size(job, stage, chunk, job.sharding.overlap)
    yield from ((int(b.nbytes), b.after) for b in buckets(parts, operation="", bytes_per_element=1, size=size))


@rules.register("torch")
def torch(job: Job, stage: int, chunk: int, parts: Parts) -> Iterator[tuple[int, int]]:
    """torch's DDP: tensor by tensor; the first bucket is small unless the scenario gives a size."""
    tensors, size, per_element = ready(job, parts), REDUCE_BUCKET.of(job), job.training.gradient_bytes
    cap = size * per_element if size else None
    for cut in ddp_cuts([n for n, _ in tensors], element_bytes=per_element, cap=cap):
        yield cut.elements, tensors[cut.last][1]


@rules.register("deepspeed")
def deepspeed(job: Job, stage: int, chunk: int, parts: Parts) -> Iterator[tuple[int, int]]:
    """DeepSpeed: a bucket is full when the next gradient does not fit, and then it is reduced."""
    tensors = ready(job, parts)
    size = int(REDUCE_BUCKET.of(job) or job.framework.communication.bucket_parameters)

    def complete(cut: Cut) -> int:
        return tensors[min(cut.last + 1, len(tensors) - 1)][1]

    for cut in ipg_cuts([n for n, _ in tensors], bucket=size):
        yield cut.elements, complete(cut)


def ready(job: Job, parts: Parts) -> list[tuple[int, int]]:
    """(Elements, part) of a chunk's tensors in the order of their gradients.

    A part whose tensors are others than those of a whole model (adapters, the head of a spread vocabulary, the second
    matrix of tied embeddings) counts as one tensor.
    """
    last = len(parts.layers) + 1
    head, layers, embedding = _gradients_of(job)
    out: list[tuple[int, int]] = []
    for part, total in enumerate([parts.head, *parts.layers, parts.embedding]):
        known = head if part == 0 else embedding if part == last else layers
        out += [(n, part) for n in known.get(total, [total]) if n]
    return out


def _gradients_of(job: Job) -> tuple[dict[int, list[int]], ...]:
    """Of the head, of a layer of each kind and of the embedding: all elements -> those of each tensor, in the order of
    their gradients."""
    of_part: tuple[dict[int, list[int]], ...] = ({}, {}, {})
    names = dict.fromkeys(kind.name for kind in job.model.kinds)
    for name in names:
        model = whole(replace(job, model=replace(job.model, layers=1, layer_pattern=(name,))))
        for part, known in enumerate(of_part):
            sizes = [model.sizes[tensor] for tensor in model.ready if model.part[tensor] == part]
            known[sum(sizes)] = sizes
    return of_part
