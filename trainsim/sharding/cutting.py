"""
Which gradients a bucket holds: a rule per framework, over the tensors of a chunk in the order of their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from trainsim.contracts.job import Job
from trainsim.models.transformer import Transformer
from trainsim.registry import Registry
from trainsim.sharding.bucketing import BucketCut, ddp_cuts, ipg_cuts
from trainsim.sharding.parameter_groups import ChunkParameters, ParameterGroup
from trainsim.sharding.plan import Bucket
from trainsim.sharding.strategy_options import REDUCE_BUCKET
from trainsim.sharding.tensorwise import whole

Rule = Callable[[Job, int, int, ParameterGroup], Iterable[tuple[int, int]]]
"""(Job, stage, chunk, group) -> (elements, part after which they are complete) of each bucket."""

rules: Registry[Rule] = Registry("bucket rule")


def reductions(job: Job, stage: int, chunk: int, group: ParameterGroup, *, operation: str) -> tuple[Bucket, ...]:
    """The buckets in which the gradients of a chunk's parameters of *group* are reduced, as the framework cuts them."""
    rule, per_element = rules[job.framework.communication.bucket_rule], job.training.gradient_bytes
    return tuple(
        Bucket(operation, float(per_element * elements), after, group.over, group.name)
        for elements, after in rule(job, stage, chunk, group)
        if elements
    )


def filled(parts: Iterable[int], size: float | None) -> Iterator[tuple[int, int]]:
    """(Elements, part that completes it) of buckets that close as soon as they hold *size* elements; None: one bucket.

    >>> list(filled((0, 10, 10, 10, 5), size=20))
    [(20, 2), (15, 4)]
    """
    held = 0
    elements = tuple(parts)
    for k, count in enumerate(elements):
        held += count
        last = k == len(elements) - 1
        if held and (last or (size is not None and held >= size)):
            yield held, k
            held = 0


def bucket_size(job: Job, stage: int, chunk: int, *, overlapped: bool, replicas: int) -> float | None:
    """Elements per bucket of a chunk on pipeline rank *stage*, or None for a single bucket.

    Megatron-LM splits only the first chunk of the first stage: the others reduce when their backwards are over.
    """
    sent = job.framework.communication
    split = sent.bucketed_stages == "all" or (stage == 0 and chunk == 0)
    if not overlapped or not split:
        return None
    return REDUCE_BUCKET.of(job) or max(sent.bucket_parameters, sent.bucket_parameters_per_rank * replicas)


@rules.register("megatron")
def megatron(job: Job, stage: int, chunk: int, group: ParameterGroup) -> Iterator[tuple[int, int]]:
    """Megatron-LM: layer by layer until a bucket is full; one bucket where nothing overlaps."""
    size = bucket_size(job, stage, chunk, overlapped=job.sharding.overlap, replicas=group.replicas)
    yield from filled(group.chunks[chunk].parts, size)


@rules.register("torch")
def torch(job: Job, stage: int, chunk: int, group: ParameterGroup) -> Iterator[tuple[int, int]]:
    """torch's DDP: tensor by tensor; the first bucket is small unless the scenario gives a size."""
    tensors, size, per_element = ready(job, group.chunks[chunk]), REDUCE_BUCKET.of(job), job.training.gradient_bytes
    cap = size * per_element if size else None
    for cut in ddp_cuts([n for n, _ in tensors], element_bytes=per_element, cap=cap):
        yield cut.elements, tensors[cut.last][1]


@rules.register("deepspeed")
def deepspeed(job: Job, stage: int, chunk: int, group: ParameterGroup) -> Iterator[tuple[int, int]]:
    """DeepSpeed: a bucket is full when the next gradient does not fit, and then it is reduced."""
    tensors = ready(job, group.chunks[chunk])
    size = int(REDUCE_BUCKET.of(job) or job.framework.communication.bucket_parameters)

    def complete(cut: BucketCut) -> int:
        return tensors[min(cut.last + 1, len(tensors) - 1)][1]

    for cut in ipg_cuts([n for n, _ in tensors], bucket=size):
        yield cut.elements, complete(cut)


def owned(job: Job, chunk: ChunkParameters, owners: int) -> Iterator[tuple[int, int]]:
    """(Elements, last part) of what each of *owners* has where tensors are not cut: the largest goes first, to the one
    who has least. Of fewer tensors than owners each has one of its own.

    Source: internlm/solver/optimizer/hybrid_zero_optim.py of InternLM/InternEvo (``_partition_param_list``).
    """
    least = [(0, owner) for owner in range(owners)]
    last = [0] * owners
    for size, part in sorted(ready(job, chunk), reverse=True):
        held, owner = heappop(least)
        last[owner] = max(last[owner], part)
        heappush(least, (held + size, owner))
    yield from sorted((held, last[owner]) for held, owner in least if held)


def ready(job: Job, parts: ChunkParameters) -> list[tuple[int, int]]:
    """(Elements, part) of a chunk's tensors in the order of their gradients.

    A part whose tensors are others than those of a whole model (adapters, the head of a spread vocabulary, the second
    matrix of tied embeddings) counts as one tensor.
    """
    last = len(parts.layers) + 1
    head, layers, embedding = _gradients_of(job)
    out: list[tuple[int, int]] = []
    for part, total in enumerate(parts.parts):
        known = head if part == 0 else embedding if part == last else layers
        out += [(n, part) for n in known.get(total, [total]) if n]
    return out


def _gradients_of(job: Job) -> tuple[dict[int, list[int]], ...]:
    """Of the head, of a layer of each kind and of the embedding: all elements -> those of each tensor, in the order of
    their gradients."""
    head: dict[int, list[int]] = {}
    layers: dict[int, list[int]] = {}
    embedding: dict[int, list[int]] = {}
    for model in _of_each_kind(job.model):
        tensors = whole(replace(job, model=model))
        for part, known in enumerate((head, *[layers] * model.layers, embedding)):
            sizes = [tensors.sizes[tensor] for tensor in tensors.ready if tensors.part[tensor] == part]
            known[sum(sizes)] = sizes
    return head, layers, embedding


def _of_each_kind(model: Transformer) -> Iterator[Transformer]:
    """The smallest models that have all kinds of layers of *model* between them."""
    if model.encoder_layers:
        yield replace(model, layers=2, encoder_layers=1)
        return
    for name in dict.fromkeys(kind.name for kind in model.kinds):
        yield replace(model, layers=1, layer_pattern=(name,))
