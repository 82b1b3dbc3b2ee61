"""
The operations of a layer, of the embedding and of the head: shapes, bytes moved and bytes kept, on one rank.

Bytes moved are those of fused 16-bit kernels as Megatron-LM has them, and twice that in 32 bits. Bytes kept from
forward to backward are the framework's table (``trainsim.frameworks.kept``); Megatron-LM's adds up to the closed forms
of Korthikanti et al. 2022 (arXiv 2205.05198).
"""

from __future__ import annotations

from functools import lru_cache

from trainsim.models.attention_operations import attention, rope
from trainsim.models.counts import megatron_flops, parameters_per_rank
from trainsim.models.layer_kind import LayerKind
from trainsim.models.local_layer import LocalLayer
from trainsim.models.lora import adapted
from trainsim.models.operations import MemoryBound, Operation, Work
from trainsim.models.recompute import selective
from trainsim.models.shapes import Shape, Style, style_of
from trainsim.models.transformer import Transformer

__all__ = [
    "Shape",
    "Style",
    "embedding_operations",
    "head_operations",
    "layer_operations",
    "megatron_flops",
    "parameters_per_rank",
    "style_of",
]


@lru_cache(maxsize=1024)
def layer_operations(kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """One transformer layer of this *kind* in forward order: norm, attention, norm, MLP."""
    return selective[style.selective](adapted(_layer(kind, shape, style), kind, shape, style), kind, shape)


def _layer(kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    make = LocalLayer(kind, shape, style)
    return (
        make.norm("norm1"),
        make.linear("qkv", make.heads_width, kind.hidden, "column", keeps=make.kept_width * shape.element),
        *rope(make),
        *attention(make),
        make.linear("proj", kind.hidden, make.query_width, "row"),
        make.residual("add1"),
        make.norm("norm2"),
        *_mlp(make),
        make.residual("add2"),
    )


def _mlp(make: LocalLayer) -> tuple[Operation, ...]:
    return (
        make.linear("fc1", make.fc1_width, make.kind.hidden, "column"),
        make.activation(),
        make.linear("fc2", make.kind.hidden, make.ffn_width, "row"),
    )


@lru_cache(maxsize=1024)
def embedding_operations(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """Look-up, positions and, if the model has it, the norm after them."""
    make = LocalLayer(model.kind, shape, style)
    h, table = model.hidden, shape.padded_vocab // shape.tp * model.hidden
    dense: tuple[Work, ...] = ()  # a framework that accumulates outside the GEMMs adds a whole table per microbatch
    if not style.accumulates:
        dense = (MemoryBound("embedding table", "elementwise", 6.0 * table),)
    lookup = Operation(
        name="embedding",
        forward=(make.moves("embedding", "embedding", 6.0 * shape.tokens * h),),
        weight_gradient=(make.moves("embedding", "embedding_backward", 8.0 * shape.tokens * h), *dense),
        parallel="row",
        boundary=make.boundary,
        transient=make.boundary + make.weight_gradient("embedding", table)[0],
    )
    operations = (lookup, make.norm("embedding norm")) if model.embedding_norm else (lookup,)
    return adapted(operations, model.kind, shape, style)


@lru_cache(maxsize=1024)
def head_operations(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """Final norm, logits and cross-entropy."""
    make = LocalLayer(model.kind, shape, style)
    columns = shape.padded_vocab // shape.tp
    logits, held = float(shape.tokens * columns), style.saved.logits
    loss = Operation(
        name="loss",
        forward=(MemoryBound("loss", "cross_entropy", 0.7 * style.loss_bytes_per_logit * logits),),
        input_gradient=(MemoryBound("loss", "cross_entropy", 0.3 * style.loss_bytes_per_logit * logits),),
        reduced=(4.0 * shape.tokens,) * 3,  # maximum, target's logit, sum of exponentials: fp32 per token
        saved=held.kept * logits,
        transient_forward=held.forward * logits,
        transient=held.backward * logits,
    )
    logits_product = make.linear("logits", columns, model.hidden, "column", low=False)
    return adapted((make.norm("final norm"), logits_product, loss), model.kind, shape, style)
