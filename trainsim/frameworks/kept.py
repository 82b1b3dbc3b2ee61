"""
What a framework keeps: of every parameter between steps, and of every kind of operation from forward to backward.

The inputs of linear layers, and the queries, keys and values of attention, are kept by all frameworks; the tables of
`Saved` say what their other kernels keep beside those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ALIKE = {"layernorm1p": "layernorm", "relu2": "gelu"}
"""Kinds without a row of their own, which keep as much as another: an input and its statistics, or an input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """Weights, gradients and the optimizer's copies. In single precision everything is fp32 and nothing is cast.

    ``weights`` are stored in the ``training`` precision (``master``: with an fp32 copy among the optimizer's states),
    or in ``fp32`` and cast for each use; ``cast_copy``: the cast ones stay until the step is over (autocast's cache).
    Gradients are summed in ``accumulation``; ``beside`` them is ``low``: the last ones in the training precision, or
    ``buckets``: the copies that are sent. ``gradient_cast``: the optimizer's fp32 copy of 16-bit sums is ``resident``,
    or taken for the ``step``, of at most ``sub_group`` parameters at once (0: of all) where weights are shared.
    ``sums_apart``: a shared gradient is made beside its sum over microbatches. ``foreach``: the step runs each of its
    operations over all tensors. ``fresh``: whole gradients are made by the first backward of a step and dropped after
    its update. ``fp8_copies`` are numbers of 8 bits kept per parameter of a linear layer in fp8 or mxfp8.
    """

    weights: Literal["training", "fp32"]
    master: bool
    cast_copy: bool
    accumulation: Literal["training", "fp32"]
    beside: Literal["none", "buckets", "low"]
    gradient_cast: Literal["none", "resident", "step"]
    sub_group: float
    sums_apart: bool
    foreach: bool
    fresh: bool
    fp8_copies: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """So many tensors in the type of the activations, so many in fp32, and so many fp32 numbers per row.

    >>> Kept(tensors=1, fp32=1, rows=1).nbytes(100.0, element=2, rows=10)
    640.0
    """

    tensors: float = 0.0  # tensors in the type of the activations
    fp32: float = 0.0  # tensors in fp32
    rows: float = 0.0  # fp32 numbers per row

    def nbytes(self, elements: float, *, element: int, rows: float = 0.0) -> float:
        """Bytes for a tensor of *elements* in *rows*, where an activation's element has *element* bytes."""
        return (self.tensors * element + 4.0 * self.fp32) * elements + 4.0 * self.rows * rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Logits:
    """Bytes per logit: kept until backward, and on top of it for a while in the forward and backward of the loss."""

    kept: float  # until the backward pass
    forward: float  # on top of it, while the loss is made
    backward: float  # on top of it, while its gradient is made


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One framework's table. A row is a token for norms, a head of a token for fused attention.

    ``expanded_heads``: unfused attention repeats grouped keys and values for every query head, in memory.
    """

    layernorm: Kept  # of a LayerNorm
    rmsnorm: Kept  # of an RMSNorm
    rmsnorm1p: Kept  # of one that scales by 1 + weight
    gelu: Kept  # of a GELU
    gelu_tanh: Kept  # of its approximation
    relu: Kept  # of a ReLU
    gated: Kept  # of a gated activation: SwiGLU, GeGLU
    softmax: Kept  # of unfused attention
    fused_attention: Kept  # of a fused attention kernel, beside its inputs and output
    logits: Logits  # of the loss, per logit
    expanded_heads: bool = False

    def of(self, kind: str) -> Kept:
        """The row of the table for a kind of norm or activation."""
        row = getattr(self, ALIKE.get(kind, kind))
        assert isinstance(row, Kept), kind
        return row
