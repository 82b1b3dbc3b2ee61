"""
What one rank has of a layer, and the operations that every layer is made of: norms, linear layers, additions.

Bytes moved are those of fused 16-bit kernels as Megatron-LM has them, and twice that in 32 bits. Bytes kept from
forward to backward are the framework's table (``trainsim.frameworks.kept``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainsim.models.autocast import casts
from trainsim.models.layer_kind import GATED, LayerKind
from trainsim.models.linears import ATTENTION_BIASED, MLP_BIASED, QKV_BIASED
from trainsim.models.operations import Gemm, MemoryBound, Operation, Work
from trainsim.models.operators import DIRECTIONS, unfused
from trainsim.models.shapes import Shape, Style

MASK = 1  # bytes of a dropout mask's element


BIASED = {
    "qkv": QKV_BIASED,
    **dict.fromkeys(("q_a", "kv_a", "proj"), ATTENTION_BIASED),
    **dict.fromkeys(("fc1", "fc2"), MLP_BIASED),
}
"""Products that have biases, by where a model has them."""
PARTS = {"qkv": 3, "fc1": 2, "shared fc1": 2}
"""Linear layers that are one product here and share their input, in models of the Llama kind (a gated MLP)."""
UNFUSED = {"layernorm1p": "layernorm"}
"""Norms whose operators are those of another."""


class LocalLayer:
    """Widths of one rank and the operations that are made of them."""

    def __init__(self, kind: LayerKind, shape: Shape, style: Style):
        self.kind, self.shape, self.style = kind, shape, style
        self.heads = max(1, kind.heads // shape.tp)
        self.kv_heads = max(1, kind.kv_heads // shape.tp)
        self.query_width, self.value_width = self.heads * kind.query_dim, self.heads * kind.value_dim
        self.heads_width = self.query_width + self.kv_heads * (kind.query_dim + kind.value_dim)
        repeated = style.attention == "eager" and style.saved.expanded_heads and self.kv_heads > 1
        kept_heads = self.heads if repeated else self.kv_heads  # one head for all is broadcast, not repeated
        self.kept_width = self.query_width + kept_heads * (kind.query_dim + kind.value_dim)
        self.ffn_width = kind.ffn_hidden // shape.tp
        self.fc1_width = self.ffn_width * (2 if kind.gated_mlp else 1)
        gathered = shape.norm_tokens * shape.tp if shape.sequence_parallel else shape.tokens  # with what pads them
        self.boundary = float(shape.element * gathered * kind.hidden)
        self.dropout = style.dropout and kind.dropout

    def moves(self, name: str, kind: str, nbytes: float) -> MemoryBound:
        """A kernel that moves *nbytes* in 16 bits, twice that in 32."""
        return MemoryBound(name, kind, nbytes * self.shape.element / 2)

    def norm(self, name: str, width: int | None = None) -> Operation:
        """LayerNorm or RMSNorm over *width* numbers (None: the residual stream's)."""
        elements = self.shape.norm_tokens * (width or self.kind.hidden)
        element = self.shape.stream if width is None else self.shape.element
        forward, backward = self.norm_kernels(name, elements, element=element)
        return Operation(
            name=name,
            forward=(forward,),
            input_gradient=(backward,),
            output=element * elements,
            saved=self.style.saved.of(self.kind.norm).nbytes(elements, element=element, rows=self.shape.norm_tokens),
            transient=self.working(2 * elements, element=element),
        )

    def norm_kernels(self, name: str, elements: float, *, element: int) -> tuple[MemoryBound, MemoryBound]:
        """A norm over *elements*, forward and backward: one kernel reads and writes once, five times that backward."""
        if self.style.fused.norm:
            forward, backward = (MemoryBound(name, "norm", passes * element * elements) for passes in (2, 5))
            return forward, backward
        return self._operators(name, self.kind.norm, elements, element=element)

    def rotation(self, elements: float, *, fused: float) -> tuple[MemoryBound, MemoryBound]:
        """Rotation of *elements* of queries and keys, forward and backward; one kernel moves *fused* bytes."""
        if self.style.fused.rotary:
            return self.moves("rope", "rope", fused), self.moves("rope", "rope", fused)
        return self._operators("rope", "rotary", elements)

    def _operators(
        self, name: str, kind: str, elements: float, *, element: int | None = None
    ) -> tuple[MemoryBound, MemoryBound]:
        """The operators of a *kind* that nothing fuses, forward and backward."""
        given: dict[str, Any] = {"element": element or self.shape.element, "trained": self.kind.lora is None}
        kind = UNFUSED.get(kind, kind)
        forward, backward = (unfused(name, kind, direction, elements, **given) for direction in DIRECTIONS)
        return forward, backward

    def working(self, elements: float, *, element: int | None = None) -> float:
        """Bytes of gradients of *elements* activations, and of the residual stream's beside them."""
        stream = self.shape.stream * self.shape.norm_tokens * self.kind.hidden
        return (element or self.shape.element) * elements + stream

    def weight_gradient(self, name: str, parameters: float) -> tuple[float, float]:
        """Bytes of a weight's gradient outside the main buffer: while it is made, and kept for all of its shape."""
        nbytes = float(self.shape.element * parameters)
        how = "none" if self.kind.lora else self.style.weight_gradients  # frozen weights have none
        cached = how == "cached" and name not in ("logits", "embedding")
        return (0.0 if cached or how == "none" else nbytes), (nbytes if cached else 0.0)

    def kept(self, kind: str, elements: float, rows: float = 0.0) -> float:
        """Bytes that the framework keeps of an operation of this kind."""
        return self.style.saved.of(kind).nbytes(elements, element=self.shape.element, rows=rows)

    def linear(
        self,
        name: str,
        n: int,
        k: int,
        parallel: str,
        *,
        keeps: float = 0.0,
        low: bool = True,
        shared_input: bool = False,
        rows: float | None = None,
    ) -> Operation:
        """A linear layer of *k* inputs and *n* outputs here; keeps its input and *keeps* bytes per token.

        A *shared_input* is kept by the layer before it. A weight that is not cut (*parallel* none) works on the tokens
        of this rank, or on so many *rows*.
        """
        shape = self.shape
        m = shape.tokens if parallel != "none" else max(1, round(shape.norm_tokens if rows is None else rows))
        precision = None if low else shape.products
        inputs = 0.0 if shared_input else (shape.norm_tokens if parallel == "column" else m) * k
        made, resident = self.weight_gradient(name, n * k)
        gathered = m * k if parallel == "column" and shape.sequence_parallel and shape.tp > 1 else 0  # the input
        product = Operation(
            name=name,
            forward=(*self._low_precision(name, m * k, low), Gemm(name, m, n, k, precision=precision)),
            input_gradient=(
                *self._low_precision(name, m * n, low),
                Gemm(f"{name} dgrad", m, k, n, role="input", precision=precision),
                *self._summed_inputs(name, m * k),
            ),
            weight_gradient=(
                Gemm(f"{name} wgrad", n, k, m, role="weight", accumulates=self.style.accumulates, precision=precision),
                *self._gradient_kernels(name, n, k, parallel),
            ),
            parallel=parallel,
            boundary=self.boundary if k == self.kind.hidden or parallel == "row" else float(shape.element * m * k),
            output=float(shape.element * n * (shape.norm_tokens if parallel == "row" else m)),
            saved=inputs * (shape.linear_element if low else shape.element) + keeps * m,
            transient=self.working(m * (n + k) + gathered) + made,
            resident=resident,
        )
        return casts(product, shape, self.style, parts=self._parts(name), frozen=self.kind.lora is not None)

    def _low_precision(self, name: str, elements: float, low: bool) -> Iterator[MemoryBound]:
        """The cast of an input or gradient to 8 bits or fewer, where the product is in them (*low*)."""
        if low and (recipe := self.shape.recipe):
            moved = recipe.moved(transposed=self.shape.transposed_copies)
            yield MemoryBound(f"{name} cast", recipe.kind, moved * elements, recipe.kernels)

    def _parts(self, name: str) -> int:
        """Linear layers that are one product here, each with a kernel of its own for what is not fused."""
        return PARTS.get(name, 1) if self.kind.gated_mlp and not self.style.fused.inputs else 1

    def _summed_inputs(self, name: str, elements: float) -> Iterator[MemoryBound]:
        """The sums of gradients of an input that several linear layers share, which are one product here."""
        parts = self._parts(name)
        if parts > 1:
            once = unfused(f"{name} input", "inputs", "backward", elements, element=self.shape.stream)
            yield replace(once, nbytes=once.nbytes * (parts - 1), kernels=parts - 1)

    def _gradient_kernels(self, name: str, n: int, k: int, parallel: str) -> Iterator[Work]:
        """What a weight gradient needs beside its GEMM: the bias's sum over tokens, and the addition to the buffer."""
        if self._biased(name) and self.style.bias_kernels:
            tokens = self.shape.tokens if parallel == "column" else self.shape.norm_tokens
            yield self.moves(f"{name} bias gradient", "bias_gradient", 2.0 * tokens * n)
        if self.style.accumulation_bytes > 0:
            kind = "elementwise" if name == "logits" else "accumulation"
            yield MemoryBound(f"{name} accumulation", kind, self.style.accumulation_bytes * n * k)

    def residual(self, name: str, *, branches: int = 1) -> Operation:
        """Dropout and residual addition of one or more *branches*; two kernels where they are not fused (with the
        bias)."""
        elements = self.shape.norm_tokens * self.kind.hidden
        mask = MASK if self.dropout else 0
        stream, element = self.shape.stream, self.shape.element
        moved = 2 * stream + branches * element + mask
        cast = branches * (stream + element) if stream != element else 0  # of the gradient, for each branch
        forward: list[Work] = [MemoryBound(name, "elementwise", moved * elements)]
        if not self.style.fused.bias and (self.dropout or self._biased("proj")):
            forward.append(self.moves(f"{name} unfused", "elementwise", 5 * elements))
        if not self.style.fused.residual and self.dropout:
            forward.append(self.moves(f"{name} dropout", "elementwise", 4 * elements))
        backward = (2 + branches) * stream + cast + (2 * element + mask if self.dropout else 0)
        return Operation(
            name=name,
            forward=tuple(forward),
            input_gradient=(MemoryBound(name, "elementwise", backward * elements),),
            saved=mask * elements,
        )

    def activation(self, elements: float | None = None) -> Operation:
        """GELU or ReLU (with its bias, if fused) or the gated product of two halves; of the MLP if no *elements*."""
        elements = float(self.shape.tokens * self.ffn_width) if elements is None else elements
        gated, kind = self.kind.gated_mlp, "gated" if self.kind.gated_mlp else self.kind.activation
        name = GATED[self.kind.activation] if gated else kind.removesuffix("_tanh")
        forward, backward = self._activation_kernels(name, kind, elements)
        return Operation(
            name=name,
            forward=(forward,),
            input_gradient=(backward,),
            saved=self.kept(kind, elements),
            transient=self.working((3 if gated else 2) * elements),
        )

    def _activation_kernels(self, name: str, kind: str, elements: float) -> tuple[MemoryBound, MemoryBound]:
        """The activation, forward and backward; a bias that is not fused is a pass of its own before it."""
        if kind == "gelu_tanh" and not self.style.fused.gelu_tanh:
            return self._operators(name, "gelu_tanh operators", elements)
        if not self.style.fused.activation:
            return self._operators(name, kind, elements)
        if kind == "gated":
            return self.moves(name, "elementwise", 6 * elements), self.moves(name, "elementwise", 10 * elements)
        moved = 4 if self.style.fused.bias or not self._biased("fc1") else 6
        return self.moves(name, "gelu", moved * elements), self.moves(name, "gelu_backward", 6 * elements)

    def _biased(self, product: str) -> bool:
        """Whether a product has biases."""
        return self.kind.biases in BIASED.get(product, ())
