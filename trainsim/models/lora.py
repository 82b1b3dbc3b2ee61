"""
What adapters change in the operations of a model: two small products beside each target, and no gradient of a weight
that is frozen.

An adapter on split columns has its first matrix whole on every rank, one on split rows has its second, so that its
partial sums join those of the layer that it is beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from trainsim.models.adapters import expanded, members
from trainsim.models.frozen import unpacked
from trainsim.models.layer_kind import LayerKind, counted
from trainsim.models.linears import Linear, linears
from trainsim.models.matrices import Matrix, Tensors
from trainsim.models.operations import Gemm, MemoryBound, Operation, Work, works
from trainsim.models.shapes import Shape, Style


class Adapter(NamedTuple):
    """The adapter on one linear layer of a rank: ``rank`` x inputs, then outputs x ``rank``."""

    on: Linear
    rank: int

    @property
    def parameters(self) -> int:
        return self.rank * (self.on.inputs + self.on.outputs)


def adapters(kind: LayerKind, tp: int) -> tuple[Adapter, ...]:
    """The adapters of one transformer layer on one of *tp* ranks.

    >>> from trainsim.models.reading import transformer
    >>> model = transformer({"name": "llama-2-7b", "lora": {"rank": 8, "targets": ["q", "down"]}})
    >>> [adapter.parameters for adapter in adapters(model.kind, 1)]
    [65536, 120832]
    """
    if kind.lora is None:
        return ()
    named = {linear.name: linear for linear in linears(kind, tp)}
    out = []
    for target in expanded(kind.lora.targets, gated=kind.gated_mlp):
        together = [named[name] for name in members(target, gated=kind.gated_mlp)]
        product = together[0]._replace(name=target, outputs=sum(linear.outputs for linear in together))
        out.append(Adapter(product, kind.lora.rank))
    return tuple(out)


def adapter_tensors(kinds: Iterable[LayerKind], tp: int) -> Tensors:
    """The matrices of the adapters of layers of these *kinds* on one rank: all that is trained."""
    pairs = (
        (Matrix(a.rank, a.on.inputs, layers), Matrix(a.on.outputs, a.rank, layers))
        for kind, layers in counted(kinds).items()
        for a in adapters(kind, tp)
    )
    return Tensors(tuple(m for pair in pairs for m in pair), (), 0)


def adapted(operations: tuple[Operation, ...], kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """*operations* of a model whose weights are frozen if it has adapters, those of a layer of this *kind* on them."""
    return tuple(_frozen(o, kind, shape, style) for o in operations) if kind.lora else operations


def first_layer(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """A first layer over a frozen embedding: nothing below its first adapter needs a gradient."""
    at = next(k for k, o in enumerate(operations) if o.weight_gradient)
    lowest = operations[at]
    needed = tuple(w for w in works(lowest.input_gradient) if w.name.endswith(_UP))
    below = (replace(o, input_gradient=()) for o in operations[:at])
    return (*below, replace(lowest, input_gradient=needed), *operations[at + 1 :])


_UP = " B dgrad"
"""How the product is called that takes a gradient from an adapter's output into it."""


def _frozen(o: Operation, kind: LayerKind, shape: Shape, style: Style) -> Operation:
    """*o* without its weights' gradients, with the adapters on it and what its weight needs before it is used."""
    o = unpacked(o, kind, shape, style)
    beside = [a for a in adapters(kind, shape.tp) if a.on.product == o.name]
    products = [w for w in o.forward if isinstance(w, Gemm)]
    saved = o.saved
    attended = o.name == "proj" and style.attention != "eager"  # a fused attention keeps its output for itself
    if o.weight_gradient and products and not beside and not attended:
        tokens = shape.norm_tokens if o.parallel == "column" else shape.tokens
        kept = shape.element if o.name == "logits" else shape.linear_element
        saved = max(0.0, saved - tokens * products[0].k * kept)
    saved += sum(shape.element * shape.tokens * a.rank for a in beside)
    return replace(
        o,
        forward=(*o.forward, *(w for a in beside for w in _forward(a, shape))),
        input_gradient=(*o.input_gradient, *(w for a in beside for w in _input_gradient(a, shape))),
        weight_gradient=tuple(w for a in beside for w in _weight_gradient(a, shape, style)),
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
