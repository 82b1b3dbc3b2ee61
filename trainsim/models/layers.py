"""
The operations of a layer, of the embedding and of the head: shapes, bytes moved and bytes kept, on one rank.

Bytes moved are those of fused 16-bit kernels as Megatron-LM has them, and twice that in 32 bits. Bytes kept from
forward to backward are the framework's table (``trainsim.frameworks.kept``); Megatron-LM's adds up to the closed forms
of Korthikanti et al. 2022 (arXiv 2205.05198).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from trainsim.models.attention_operations import attention
from trainsim.models.counts import megatron_flops, parameters_per_rank
from trainsim.models.cross_attention import cross_attention
from trainsim.models.cross_entropies import Head, cross_entropies
from trainsim.models.expert_operations import mixture
from trainsim.models.layer_kind import LayerKind
from trainsim.models.local_layer import LocalLayer
from trainsim.models.lora import adapted
from trainsim.models.operations import Exchange, MemoryBound, Operation, Work
from trainsim.models.projections import projections
from trainsim.models.recompute import policies
from trainsim.models.recompute_modules import chosen
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
    shape = shape.in_decoder if kind.cross_attention else shape
    layer = adapted(_layer(kind, shape, style), kind, shape, style)
    if style.recompute_modules:
        return chosen(layer, kind, shape, style.recompute_modules)
    return policies[style.selective](layer, kind, shape)


def _layer(kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    make = LocalLayer(kind, shape, style)
    attended = (*projections(make), *attention(make), make.linear("proj", kind.hidden, make.value_width, "row"))
    if kind.parallel_residual:
        between = () if kind.shared_norm else (make.norm("norm2"),)
        return (make.norm("norm1"), *attended, *between, *_mlp(make), make.residual("add2", branches=2))
    after = [(make.norm(name),) if kind.post_norms else () for name in ("attention norm", "mlp norm")]
    return (
        make.norm("norm1"),
        *attended,
        *after[0],
        make.residual("add1"),
        *cross_attention(make),
        make.norm("norm2"),
        *_mlp(make),
        *after[1],
        make.residual("add2"),
    )


def _mlp(make: LocalLayer) -> tuple[Operation, ...]:
    if make.kind.moe is not None:
        return mixture(make)
    return (
        make.linear("fc1", make.fc1_width, make.kind.hidden, "column", shared_input=make.kind.shared_norm),
        make.activation(),
        make.linear("fc2", make.kind.hidden, make.ffn_width, "row"),
    )


@lru_cache(maxsize=1024)
def embedding_operations(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """Look-up, positions and, if the model has it, the norm after them."""
    make = LocalLayer(model.kind, shape, style)
    h, table = model.embedding_width, shape.padded_vocab // shape.tp * model.embedding_width
    dense: tuple[Work, ...] = ()  # a framework that accumulates outside the GEMMs adds a whole table per microbatch
    if not style.accumulates:
        dense = (MemoryBound("embedding table", "elementwise", 6.0 * table),)
    lookup = Operation(
        name="embedding",
        forward=(MemoryBound("embedding", "embedding", 3.0 * shape.stream * shape.tokens * h),),
        weight_gradient=(
            MemoryBound("embedding", "embedding_backward", 4.0 * shape.stream * shape.tokens * h),
            *dense,
        ),
        parallel="row",
        boundary=float(shape.element * shape.tokens * h),
        transient=make.boundary + make.weight_gradient("embedding", table)[0],
    )
    widened = () if model.embedding_size is None else (make.linear("word projection", model.hidden, h, "none"),)
    operations = (lookup, *widened, *((make.norm("embedding norm"),) if model.embedding_norm else ()))
    if model.encoder_layers and not shape.memory:
        operations += embedding_operations(model, shape.in_decoder, style)
    return adapted(operations, model.kind, shape, style)


@lru_cache(maxsize=1024)
def head_operations(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """Final norm, logits and cross-entropy; then layers that predict tokens further on, with logits of their own."""
    shape = shape.in_decoder if model.encoder_layers else shape
    make = LocalLayer(model.kind, shape, style)
    first = (*((make.norm("final norm"),) if model.final_norm else ()), *_logits(make, model))
    if shape.memory:
        first = (_encoder_norm(make), *first)
    further = adapted(first, model.kind, shape, style)
    for _ in range(model.mtp_layers):
        further += (*_further(make, model), *layer_operations(model.kinds[-1], shape, style), *first)
    return further


def _encoder_norm(make: LocalLayer) -> Operation:
    """The norm after the encoder, whose result all layers of the decoder look at."""
    norm = LocalLayer(make.kind, replace(make.shape, sequence_length=make.shape.memory), make.style).norm(
        "encoder norm"
    )
    return replace(norm, saved=norm.saved + norm.output)


def _further(make: LocalLayer, model: Transformer) -> tuple[Operation, ...]:
    """What joins a token's embedding and the hidden state before it (Megatron-LM's multi_token_prediction.py)."""
    h, shape = model.hidden, make.shape
    lookup = Operation(
        name="embedding",
        forward=(make.moves("embedding", "embedding", 6.0 * shape.tokens * h),),
        weight_gradient=(make.moves("embedding", "embedding_backward", 8.0 * shape.tokens * h),),
        parallel="row",
        boundary=make.boundary,
        transient=make.boundary,
    )
    projection = make.linear("further projection", h // shape.tp, 2 * h, "column")
    gathered = Exchange("further projection", "tp", "all_gather", make.boundary)
    joined = replace(projection, forward=(*projection.forward, gathered))
    return lookup, make.norm("hidden norm"), make.norm("input norm"), joined


def _logits(make: LocalLayer, model: Transformer) -> tuple[Operation, ...]:
    """The output product and the loss, as the scenario wants it made."""
    columns, width, style = make.shape.padded_vocab // make.shape.tp, model.embedding_width, make.style
    narrowed = () if model.embedding_size is None else (make.linear("head projection", width, model.hidden, "none"),)
    product = _biased(make, model, make.linear("logits", columns, width, "column", low=False))
    head = Head(make=make, model=model, product=product, chunks=style.loss_chunks)
    return *narrowed, *cross_entropies[style.cross_entropy](head)


def _biased(make: LocalLayer, model: Transformer, product: Operation) -> Operation:
    """The output product with the sum over tokens that the gradient of its bias is."""
    if not model.head_bias or not make.style.bias_kernels:
        return product
    columns = make.shape.padded_vocab // make.shape.tp
    sums = make.moves("logits bias gradient", "bias_gradient", 2.0 * make.shape.tokens * columns)
    return replace(product, weight_gradient=(*product.weight_gradient, sums))
