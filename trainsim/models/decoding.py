"""
The operations of a model that generates: prompts in one pass, then one token of every sequence at a time.

They are those of the forward pass of training without dropout and without anything kept. Where a token is
generated, all products have as many rows as there are sequences, and attention reads the keys and values of all tokens
before it.
"""

from __future__ import annotations

from dataclasses import replace

from trainsim.models.layer_kind import LayerKind
from trainsim.models.layers import embedding_operations, head_operations, layer_operations
from trainsim.models.operations import MemoryBound, Operation
from trainsim.models.shapes import Shape, Style
from trainsim.models.transformer import Transformer

ATTENTION = "attention"
"""The operation that, while tokens are generated, is nothing but reading the cache."""
LOSS = "loss"


def inference_style(style: Style) -> Style:
    """The kernels of *style* without dropout or chunks of the loss, with a fused attention in the place of one that
    keeps its scores."""
    attention = "flash2" if style.attention == "eager" else style.attention
    return replace(style, dropout=False, cross_entropy="standard", attention=attention)


def cache_bytes(kind: LayerKind, tp: int, element: int) -> float:
    """Bytes that one rank of *tp* keeps of a token in one layer: its keys and values, at least those of a head.

    >>> from trainsim.models.reading import load_model
    >>> [cache_bytes(load_model(name).kind, 1, 2) for name in ("llama-2-7b", "llama-3-8b")]
    [16384.0, 4096.0]
    """
    return 2.0 * max(1, kind.kv_heads // tp) * kind.head_dim * element


def prompt_operations(kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """A layer over whole prompts, whose keys and values are written to the cache."""
    return (*layer_operations(kind, shape, inference_style(style)), _written(kind, shape))


def decode_operations(kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """A layer over one token of each of ``shape.micro_batch`` sequences, reading the cache aside."""
    operations = layer_operations(kind, shape, inference_style(style))
    return (*(o for o in operations if o.name != ATTENTION), _written(kind, shape))


def _written(kind: LayerKind, shape: Shape) -> Operation:
    """New keys and values, read once and written once."""
    nbytes = 2 * cache_bytes(kind, shape.tp, shape.element) * shape.tokens
    return Operation(name="cache write", forward=(MemoryBound("cache write", "elementwise", nbytes),))


def embedded(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """The embedding."""
    return embedding_operations(model, shape, inference_style(style))


def sampled(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """Norm, logits and what becomes of them, for all tokens of *shape*: the choice of the next tokens, or the
    log-probabilities of those that are there. Every rank of a tensor-parallel group does it over the whole vocabulary,
    with the traffic of the loss's forward pass."""
    before = tuple(o for o in head_operations(model, shape, inference_style(style)) if o.name != LOSS)
    logits = float(shape.tokens) * shape.padded_vocab
    work = MemoryBound("sampling", "cross_entropy", 0.7 * style.loss_bytes_per_logit * logits)
    return (*before, Operation(name="sampling", forward=(work,)))
