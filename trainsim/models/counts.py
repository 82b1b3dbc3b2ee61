"""
Parameters of one rank, and the FLOPs by which training runs are reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.errors import UnknownName
from trainsim.models.layer_kind import LayerKind, counted, layer_parameters_per_rank
from trainsim.models.lora import adapter_tensors
from trainsim.models.transformer import Transformer, padded_vocab

RECOMPUTE = ("none", "selective", "full")


def parameters_per_rank(
    model: Transformer,
    tp: int,
    kinds: Sequence[LayerKind],
    *,
    embedding: bool = False,
    head: bool = False,
    padded_vocab: int | None = None,
) -> int:
    """Parameters on one rank that holds layers of these *kinds* and, if so said, the embedding and the head.

    The word embedding is divided over *tp* with its padding (*padded_vocab*, by default Megatron-LM's); positions and
    norms are on every rank. A tied head away from the embedding keeps a copy of it, as with pipeline parallelism.

    >>> from trainsim.models.reading import load_model
    >>> model = load_model("llama-2-7b")
    >>> parameters_per_rank(model, 1, model.kinds, embedding=True, head=True)
    6738415616
    """
    table = (padded_vocab or _padded(model, tp)) // tp * model.hidden
    count = sum(layer_parameters_per_rank(kind, tp) * layers for kind, layers in counted(kinds).items())
    if embedding:
        count += table + model.position_parameters + model.embedding_norm_parameters
    if head:
        count += model.final_norm_parameters
        count += 0 if model.tied_embeddings and embedding else table
    return count


def _padded(model: Transformer, tp: int) -> int:
    return padded_vocab(model.vocab, tp)


def megatron_flops(model: Transformer, *, sequence_length: int, batch: int, recompute: str) -> float:
    """FLOP of a step as Megatron-LM reports them: 96 B s l h^2 (1 + s/6h + V/16lh) with full recomputation.

    That is four passes over the layers (three without recomputation: 72 B s l h^2 (1 + s/6h + V/12lh)) and three over
    the logits; selective recomputation repeats the two attention products. For models that are not GPT the same
    passes over their own matrices. Under adapters frozen matrices have no gradient of their own: two passes over
    them, three over the scores and over the adapters. Source: Narayanan et al., SC21 (arXiv 2104.04473), section 5.1.
    BLOOM's 105.22 s on 384 GPUs are its log's 149.02 TFLOP/s:

    >>> from trainsim.models.reading import load_model
    >>> flops = megatron_flops(load_model("bloom-176b"), sequence_length=2048, batch=2048, recompute="full")
    >>> round(flops / 105.22 / 384 / 1e12, 2)
    149.02
    """
    if recompute not in RECOMPUTE:
        raise UnknownName("kind of recomputation", recompute, RECOMPUTE)
    logits = model.logits_flops(sequence_length=sequence_length, batch=batch)
    size = {"sequence_length": sequence_length, "batch": batch}
    layers = sum(
        count * _layer_flops(kind, recompute=recompute, **size) for kind, count in counted(model.kinds).items()
    )
    return layers + (3 if model.lora is None else 2) * logits


def _layer_flops(kind: LayerKind, *, sequence_length: int, batch: int, recompute: str) -> float:
    """FLOP of one layer in a step."""
    layer = kind.flops(sequence_length=sequence_length, batch=batch)
    scores = 4.0 * batch * sequence_length**2 * kind.query_width
    adapted = 2.0 * batch * sequence_length * adapter_tensors([kind], 1).total
    again = {"none": 0.0, "selective": scores, "full": layer + adapted}[recompute]
    return (3 * layer if kind.lora is None else 2 * layer + scores + 3 * adapted) + again
