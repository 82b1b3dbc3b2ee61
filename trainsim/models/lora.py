"""
What adapters change in the operations of a model: two small products beside each target, and no gradient of a weight
that is frozen.

An adapter on split columns has its first matrix whole on every rank, one on split rows has its second, so that its
partial sums join those of the layer that it is beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import NamedTuple

from trainsim.models.adapters import members
from trainsim.models.matrices import Linear, Matrix, Tensors, linears
from trainsim.models.operations import Gemm, MemoryBound, Operation, Work
from trainsim.models.shapes import Shape, Style
from trainsim.models.transformer import Transformer

Operations = Callable[[Transformer, Shape, Style], tuple[Operation, ...]]


class Adapter(NamedTuple):
    """The adapter on one linear layer of a rank: ``rank`` x inputs, then outputs x ``rank``."""

    on: Linear
    rank: int

    @property
    def parameters(self) -> int:
        return self.rank * (self.on.inputs + self.on.outputs)


def adapters(model: Transformer, tp: int) -> tuple[Adapter, ...]:
    """The adapters of one transformer layer on one of *tp* ranks.

    >>> from trainsim.models.transformer import transformer
    >>> model = transformer({"name": "llama-2-7b", "lora": {"rank": 8, "targets": ["q", "down"]}})
    >>> [one.parameters for one in adapters(model, 1)]
    [65536, 120832]
    """
    if model.lora is None:
        return ()
    here = {one.name: one for one in linears(model, tp)}
    out = []
    for target in model.lora.targets:
        some = [here[name] for name in members(target, gated=model.gated_mlp)]
        out.append(Adapter(some[0]._replace(name=target, outputs=sum(one.outputs for one in some)), model.lora.rank))
    return tuple(out)


def adapter_tensors(model: Transformer, tp: int, layers: int) -> Tensors:
    """The matrices of the adapters of *layers* layers on one rank: all that is trained."""
    pairs = ((Matrix(a.rank, a.on.inputs, layers), Matrix(a.on.outputs, a.rank, layers)) for a in adapters(model, tp))
    return Tensors(tuple(m for pair in pairs for m in pair if layers), (), 0)


def adapted(operations: Operations) -> Operations:
    """*operations* of a model whose weights are frozen if it has adapters."""

    @wraps(operations)
    def with_adapters(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
        made = operations(model, shape, style)
        return tuple(_frozen(o, model, shape, style) for o in made) if model.lora else made

    return with_adapters


def first_layer(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """A first layer over a frozen embedding: nothing below its first adapter needs a gradient."""
    at = next(k for k, o in enumerate(operations) if o.weight_gradient)
    lowest = operations[at]
    needed = tuple(w for w in lowest.input_gradient if w.name.endswith(_UP))
    below = (replace(o, input_gradient=()) for o in operations[:at])
    return (*below, replace(lowest, input_gradient=needed), *operations[at + 1 :])


_UP = " B dgrad"
"""How the product is called that takes a gradient from an adapter's output into it."""


def _frozen(o: Operation, model: Transformer, shape: Shape, style: Style) -> Operation:
    """*o* without its weights' gradients, with the adapters on it."""
    mine = [a for a in adapters(model, shape.tp) if a.on.product == o.name]
    products = [w for w in o.forward if isinstance(w, Gemm)]
    saved = o.saved
    attended = o.name == "proj" and style.attention != "eager"  # a fused attention keeps its output for itself
    if o.weight_gradient and products and not mine and not attended:
        tokens = shape.norm_tokens if o.parallel == "column" else shape.tokens
        kept = shape.element if o.name == "logits" else shape.linear_element
        saved = max(0.0, saved - tokens * products[0].k * kept)
    saved += sum(shape.element * shape.tokens * a.rank for a in mine)
    return replace(
        o,
        forward=(*o.forward, *(w for a in mine for w in _forward(a, shape))),
        input_gradient=(*o.input_gradient, *(w for a in mine for w in _input_gradient(a, shape))),
        weight_gradient=tuple(w for a in mine for w in _weight_gradient(a, shape, style)),
        saved=saved,
    )


def _forward(a: Adapter, shape: Shape) -> Iterator[Work]:
    m, n, k = shape.tokens, a.on.outputs, a.on.inputs
    yield Gemm(f"{a.on.name} A", m, a.rank, k, precision=shape.products)
    yield Gemm(f"{a.on.name} B", m, n, a.rank, precision=shape.products)
    yield MemoryBound(f"{a.on.name} adapter", "elementwise", 3.0 * shape.element * m * n)


def _input_gradient(a: Adapter, shape: Shape) -> Iterator[Work]:
    m, n, k = shape.tokens, a.on.outputs, a.on.inputs
    yield Gemm(f"{a.on.name}{_UP}", m, a.rank, n, role="input", precision=shape.products)
    yield Gemm(f"{a.on.name} A dgrad", m, k, a.rank, role="input", precision=shape.products)
    yield MemoryBound(f"{a.on.name} adapter", "elementwise", 3.0 * shape.element * m * k)


def _weight_gradient(a: Adapter, shape: Shape, style: Style) -> Iterator[Work]:
    m, n, k, fused = shape.tokens, a.on.outputs, a.on.inputs, style.accumulates
    yield Gemm(f"{a.on.name} B wgrad", n, a.rank, m, role="weight", accumulates=fused, precision=shape.products)
    yield Gemm(f"{a.on.name} A wgrad", a.rank, k, m, role="weight", accumulates=fused, precision=shape.products)
    if style.accumulation_bytes > 0:
        yield MemoryBound(f"{a.on.name} accumulation", "accumulation", style.accumulation_bytes * a.parameters)
