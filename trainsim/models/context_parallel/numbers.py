"""How many numbers of a token attention takes and gives on one rank, and the kernels that all ways are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainsim.models.layer_kind import LayerKind
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Attention, Operation
from trainsim.models.shapes import Shape


class Widths(NamedTuple):
    """Numbers per token on one rank."""

    queries: int
    keys: int
    values: int
    output: int

    @property
    def keys_and_values(self) -> int:
        return self.keys + self.values


def widths(make: LocalLayer) -> Widths:
    """What attention takes of a token and what it gives; in latent attention keys and values after they are unfolded.

    >>> from trainsim.models.reading import load_model
    >>> from trainsim.models.shapes import Shape, style_of
    >>> from trainsim.frameworks import load_framework
    >>> shape = Shape(micro_batch=1, sequence_length=8192, tp=8, cp=2, padded_vocab=128256)
    >>> widths(LocalLayer(load_model("llama-3.1-405b").kind, shape, style_of(load_framework("nemo"))))
    Widths(queries=2048, keys=128, values=128, output=2048)
    """
    keys, values = (make.kv_heads * dim for dim in (make.kind.query_dim, make.kind.value_dim))
    return Widths(make.query_width, keys, values, make.value_width)


def kernels(fused: Operation) -> tuple[Attention, Attention]:
    """The forward and the backward kernel of a fused attention."""
    (forward,), (backward,) = fused.forward, fused.input_gradient
    assert isinstance(forward, Attention)
    assert isinstance(backward, Attention)
    return forward, backward


def needs_plain_attention(kind: LayerKind, shape: Shape, attention: str) -> Iterator[tuple[str, str]]:
    """What ways that cut the keys cannot do: kernels that keep scores, and masks that leave most of the keys out."""
    way = shape.context_parallel
    if attention == "eager":
        reason = f"context_parallel: {way} needs a fused kernel; flash2 would work, or context_parallel: ulysses"
        yield "training.attention", reason
    masks = {"sliding windows": kind.window, "chunks": kind.chunk, "documents": shape.document or None}
    for name, given in masks.items():
        if given is not None:
            reason = f"{way} is not simulated with attention in {name}; ulysses is, where heads divide"
            yield "parallel.context_parallel", reason
