"""
What torch.autocast adds to a linear layer: its fp32 weight is cast for every forward pass and the gradient cast back,
and an input that comes from a norm is cast by each linear layer that takes it.
"""

from __future__ import annotations

from dataclasses import replace

from trainsim.models.operations import Gemm, MemoryBound, Operation
from trainsim.models.shapes import SINGLE, Shape, Style

OF_THE_STREAM = ("qkv", "q", "q_a", "kv_a", "cross q", "fc1", "shared fc1", "router", "logits")
"""Products whose input is what a norm gives, or the norm's own input, which are fp32."""


def casts(o: Operation, shape: Shape, style: Style, *, parts: int, frozen: bool) -> Operation:
    """A linear layer with its casts; ``parts`` linear layers of the software are one product here.

    Each keeps its copy of the input, of which the product has one already. A cast weight is kept for the gradient of
    the input where no cache has it: autocast's holds what is trained and no view of something else.
    """
    if not shape.autocast:
        return o
    product = next(w for w in o.forward if isinstance(w, Gemm))
    m, n, k, both = product.m, product.n, product.k, shape.element + SINGLE
    copies = parts if o.name in OF_THE_STREAM else 0
    weights = MemoryBound(f"{o.name} weight cast", "elementwise", float(both * n * k), parts)
    inputs = [MemoryBound(f"{o.name} cast", "elementwise", float(both * copies * m * k), copies)] if copies else []
    kept = 0 if frozen else max(copies - 1, 0) * m * k
    return replace(
        o,
        forward=(weights, *inputs, *o.forward),
        input_gradient=(*o.input_gradient, *inputs),
        weight_gradient=o.weight_gradient if frozen else (*o.weight_gradient, weights),
        saved=o.saved + shape.element * (kept + n * k * (style.casts_kept or frozen)),
    )
