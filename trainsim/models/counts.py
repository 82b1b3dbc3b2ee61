"""
Parameters of one rank, and the FLOPs by which training runs are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainsim.errors import UnknownName
from trainsim.models.layer_kind import LayerKind, counted, layer_parameters_per_rank
from trainsim.models.lora import adapter_tensors
from trainsim.models.transformer import MTP_NORMS, Transformer, padded_vocab

RECOMPUTE = ("none", "selective", "full")


def parameters_per_rank(
    model: Transformer,
    tp: int,
    kinds: Sequence[LayerKind],
    *,
    embedding: bool = False,
    head: bool = False,
    padded_vocab: int | None = None,
    ep: int = 1,
    etp: int | None = None,
) -> int:
    """Parameters on one rank that holds layers of these *kinds* and, if so said, the embedding and the head.

    The word embedding is divided over *tp* with its padding (*padded_vocab*, by default Megatron-LM's); positions and
    norms are on every rank. A tied head away from the embedding keeps a copy of it, as with pipeline parallelism, and
    so do layers that predict tokens further on. Experts are dealt to *ep* ranks and cut over *etp* (None: over *tp*).

    >>> from trainsim.models.reading import load_model
    >>> model = load_model("llama-2-7b")
    >>> parameters_per_rank(model, 1, model.kinds, embedding=True, head=True)
    6738415616
    """
    rows = (padded_vocab or _padded(model, tp)) // tp
    table = rows * model.embedding_width
    count = sum(layer_parameters_per_rank(kind, tp, ep=ep, etp=etp) * n for kind, n in counted(kinds).items())
    if embedding:
        count += table + model.position_parameters + model.embedding_norm_parameters + model.projection_parameters
    if head:
        copies = int(not (model.tied_embeddings and embedding))
        copies += bool(model.mtp_layers and not embedding and not model.tied_embeddings)
        count += model.final_norm_parameters + model.projection_parameters + copies * table
        count += rows if model.head_bias else 0
        if model.mtp_layers:
            further = layer_parameters_per_rank(model.kinds[-1], tp, ep=ep, etp=etp)
            further += model.hidden // tp * 2 * model.hidden + MTP_NORMS * model.norm_parameters
            count += model.mtp_layers * further
    return count


def _padded(model: Transformer, tp: int) -> int:
    return padded_vocab(model.vocab, tp)


def megatron_flops(
    model: Transformer,
    *,
    sequence_length: int,
    batch: int,
    recompute: str,
    decoder_length: int | None = None,
    document: int = 0,
) -> float:
    """FLOP of a step as Megatron-LM reports them: 96 B s l h^2 (1 + s/6h + V/16lh) with full recomputation.

    That is four passes over the layers (three without recomputation: 72 B s l h^2 (1 + s/6h + V/12lh)) and three over
    the logits; selective recomputation repeats the two attention products. For models that are not GPT the same
    passes over their own matrices. Under adapters frozen matrices have no gradient of their own: two passes over
    them, three over the scores and over the adapters. Where attention stays in documents, a token's has *document*
    tokens on average. Source: Narayanan et al., SC21 (arXiv 2104.04473), section 5.1.
    BLOOM's 105.22 s on 384 GPUs are its log's 149.02 TFLOP/s:

    >>> from trainsim.models.reading import load_model
    >>> flops = megatron_flops(load_model("bloom-176b"), sequence_length=2048, batch=2048, recompute="full")
    >>> round(flops / 105.22 / 384 / 1e12, 2)
    149.02
    """
    if recompute not in RECOMPUTE:
        raise UnknownName("kind of recomputation", recompute, RECOMPUTE)
    far = decoder_length or sequence_length
    layers = 0.0
    for kind, count in counted(model.kinds).items():
        size = {"sequence_length": far, "memory": sequence_length} if kind.cross_attention else {}
        step = _Step(
            **({"sequence_length": sequence_length} | size), batch=batch, document=document, recompute=recompute
        )
        layers += count * _layer_flops(kind, step)
    last = far if model.encoder_layers else sequence_length
    passes, further = 3 if model.lora is None else 2, 0.0
    if model.mtp_layers:
        further = _layer_flops(model.kinds[-1], _Step(last, batch, document, recompute))
        further += 4.0 * passes * batch * last * model.hidden**2
    logits = (1 + model.mtp_layers) * model.logits_flops(sequence_length=last, batch=batch)
    return layers + model.mtp_layers * further + passes * logits


class _Step(NamedTuple):
    """What a layer works on in a step."""

    sequence_length: int
    batch: int
    document: int
    recompute: str
    memory: int | None = None


def _layer_flops(kind: LayerKind, step: _Step) -> float:
    """FLOP of one layer in a step; of scores twice the causal part counts: the square, or what a mask leaves."""
    s, batch = step.sequence_length, step.batch
    part = step.document if 0 < step.document < s else s
    local = kind.window is not None or kind.chunk is not None or part < s
    layer = kind.flops(sequence_length=s, batch=batch, memory=step.memory)
    scores = kind.scores_flops(sequence_length=s, batch=batch, memory=step.memory)
    if local:
        layer -= scores
        once = kind.scores_flops(sequence_length=part, batch=batch, causal=True) * s / part
        scores = (2 if kind.causal else 1) * once
        layer += scores
    adapted = 2.0 * batch * s * adapter_tensors([kind], 1).total
    again = {"none": 0.0, "selective": scores, "full": layer + adapted}[step.recompute]
    return (3 * layer if kind.lora is None else 2 * layer + scores + 3 * adapted) + again
