"""
Frozen weights that are stored in another type than that of the passes: bytes, and what makes them into it for each use.

Quantised matrices are unpacked one by one, forward and backward and in recomputation (Dettmers et al. 2023, arXiv
2305.14314, equation 5). Single-precision ones that nobody gathers are cast in each forward pass, and autograd keeps the
copies for the gradients of their inputs, since autocast remembers casts of trained weights only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from trainsim.models.layer_kind import LayerKind
from trainsim.models.linears import linears
from trainsim.models.operations import Gemm, MemoryBound, Operation
from trainsim.models.shapes import Shape, Style
from trainsim.models.weight_types import WeightType, weight_type

UNPACKED = " unpacked"
"""How the kernels are called that make frozen weights into numbers of the passes."""


class Quantised(NamedTuple):
    """The elements of some quantised matrices, and their bytes."""

    elements: int = 0
    nbytes: float = 0.0


def stored_as(kind: LayerKind) -> WeightType | None:
    """The type of frozen weights in a layer of this *kind*; None: that of the passes."""
    name = None if kind.lora is None else kind.lora.base_dtype
    return None if name is None else weight_type(name)


def quantised(kinds: Iterable[LayerKind], tp: int) -> Quantised:
    """The quantised matrices of layers of these *kinds* on one of *tp* ranks.

    >>> from trainsim.models.reading import transformer
    >>> model = transformer({"name": "llama-2-7b", "lora": {"rank": 8, "base_dtype": "nf4"}})
    >>> found = quantised(model.kinds, 1)
    >>> found.elements, f"{found.nbytes / found.elements:.3f} bytes each"
    (6476005376, '0.516 bytes each')
    """
    elements, nbytes = 0, 0.0
    for kind in kinds:
        stored = stored_as(kind)
        for w in linears(kind, tp) if stored and stored.quantised else ():
            assert stored is not None
            elements += w.outputs * w.inputs
            nbytes += stored.nbytes(w.outputs, w.inputs)
    return Quantised(elements, nbytes)


def unpacked(o: Operation, kind: LayerKind, shape: Shape, style: Style) -> Operation:
    """*o* with what its frozen weight needs before it is used."""
    stored = stored_as(kind)
    products = [w for w in o.forward if isinstance(w, Gemm)]
    if stored is None or not products or not o.weight_gradient:
        return o
    if stored.quantised:
        return _dequantised(o, kind, shape, stored)
    if style.frozen_gathered or shape.autocast or stored.bits == 8 * shape.element:
        return o
    elements = products[0].n * products[0].k
    cast = _kernel(o.name, stored, products[0].n, products[0].k, shape)
    return replace(o, forward=(cast, *o.forward), saved=o.saved + shape.element * elements)


def _dequantised(o: Operation, kind: LayerKind, shape: Shape, stored: WeightType) -> Operation:
    """*o* with kernels that unpack its matrices, one of which is there in the type of the passes at a time."""
    matrices = [w for w in linears(kind, shape.tp) if w.product == o.name]
    if not matrices:
        return o
    kernels = tuple(_kernel(w.name, stored, w.outputs, w.inputs, shape) for w in matrices)
    temporary = float(shape.element * max(w.outputs * w.inputs for w in matrices))
    return replace(
        o,
        forward=(*kernels, *o.forward),
        input_gradient=(*kernels, *o.input_gradient) if o.input_gradient else (),
        transient_forward=o.transient_forward + temporary,
        transient=o.transient + temporary,
    )


def _kernel(name: str, stored: WeightType, rows: int, columns: int, shape: Shape) -> MemoryBound:
    """The kernel that reads a matrix as it is stored and writes it as it is used."""
    nbytes = stored.nbytes(rows, columns) + shape.element * rows * columns
    return MemoryBound(f"{name}{UNPACKED}", "elementwise", nbytes)
