"""How many numbers of a token attention takes and gives on one rank, and the kernels that all ways are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainsim.models.layer_kind import LayerKind
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Attention, Operation


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
    if (latent := make.kind.mla) is not None:
        scored, given = make.heads * latent.qk_head_dim, make.heads * latent.v_head_dim
        return Widths(scored, scored, given, given)
    kv = make.kv_heads * make.kind.head_dim
    return Widths(make.query_width, kv, kv, make.query_width)


def kernels(fused: Operation) -> tuple[Attention, Attention]:
    """The forward and the backward kernel of a fused attention."""
    (forward,), (backward,) = fused.forward, fused.input_gradient
    assert isinstance(forward, Attention)
    assert isinstance(backward, Attention)
    return forward, backward


def needs_fused(kind: LayerKind, attention: str, way: str) -> Iterator[tuple[str, str]]:
    """Kernels that give the logarithm of their softmax's sum, by which parts of a result can be merged."""
    if attention == "eager":
        reason = f"context_parallel: {way} needs a fused kernel; flash2 would work, or context_parallel: ulysses"
        yield "training.attention", reason
