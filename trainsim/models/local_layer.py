"""
What one rank has of a layer, and the operations that every layer is made of: norms, linear layers, additions.

Bytes moved are those of fused 16-bit kernels as Megatron-LM has them, and twice that in 32 bits. Bytes kept from
forward to backward are the framework's table (``trainsim.frameworks.kept``).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.models.layer_kind import GATED, LayerKind
from trainsim.models.linears import ATTENTION_BIASED, MLP_BIASED, QKV_BIASED
from trainsim.models.operations import Gemm, MemoryBound, Operation, Work
from trainsim.models.shapes import LOW_PRECISION, Shape, Style

MASK = 1  # bytes of a dropout mask's element
CAST = 4.0  # bytes: 16 bits read, 8 written in both directions


BIASED = {
    "qkv": QKV_BIASED,
    **dict.fromkeys(("q_a", "kv_a", "proj"), ATTENTION_BIASED),
    **dict.fromkeys(("fc1", "fc2"), MLP_BIASED),
}
"""Products that have biases, by where a model has them."""


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
        """LayerNorm or RMSNorm over *width* numbers (None: the residual stream's): reads and writes once forward, five
        times that backward."""
        elements = self.shape.norm_tokens * (width or self.kind.hidden)
        return Operation(
            name=name,
            forward=(self.moves(name, "norm", 4 * elements),),
            input_gradient=(self.moves(name, "norm", 10 * elements),),
            output=self.shape.element * elements,
            saved=self.kept(self.kind.norm, elements, self.shape.norm_tokens),
            transient=self.working(2 * elements),
        )

    def working(self, elements: float) -> float:
        """Bytes of gradients of *elements* activations, and of the residual stream's beside them."""
        return self.shape.element * (elements + self.shape.norm_tokens * self.kind.hidden)

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
        shape, style = self.shape, self.style
        m = shape.tokens if parallel != "none" else max(1, round(shape.norm_tokens if rows is None else rows))
        precision = None if low else shape.products
        inputs = 0.0 if shared_input else (shape.norm_tokens if parallel == "column" else m) * k
        casts = low and shape.precision in LOW_PRECISION
        made, resident = self.weight_gradient(name, n * k)
        gathered = m * k if parallel == "column" and shape.sequence_parallel and shape.tp > 1 else 0  # the input
        return Operation(
            name=name,
            forward=(
                *([MemoryBound(f"{name} cast", shape.cast, CAST * m * k)] if casts else []),
                Gemm(name, m, n, k, precision=precision),
            ),
            input_gradient=(
                *([MemoryBound(f"{name} cast", shape.cast, CAST * m * n)] if casts else []),
                Gemm(f"{name} dgrad", m, k, n, role="input", precision=precision),
            ),
            weight_gradient=(
                Gemm(f"{name} wgrad", n, k, m, role="weight", accumulates=style.accumulates, precision=precision),
                *self._gradient_kernels(name, n, k, parallel),
            ),
            parallel=parallel,
            boundary=self.boundary if k == self.kind.hidden or parallel == "row" else float(shape.element * m * k),
            output=float(shape.element * n * (shape.norm_tokens if parallel == "row" else m)),
            saved=inputs * (shape.linear_element if low else shape.element) + keeps * m,
            transient=self.working(m * (n + k) + gathered) + made,
            resident=resident,
        )

    def _gradient_kernels(self, name: str, n: int, k: int, parallel: str) -> Iterator[Work]:
        """What a weight gradient needs beside its GEMM: the bias's sum over tokens, and the addition to the buffer."""
        biased = self.kind.biases in BIASED.get(name, ())
        if biased and self.style.bias_kernels:
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
        moved = (2 + branches) * self.shape.element + mask
        forward: list[Work] = [MemoryBound(name, "elementwise", moved * elements)]
        if not self.style.fused_pointwise:
            forward.append(self.moves(f"{name} unfused", "elementwise", 5 * elements))
        backward = (2 + branches) * self.shape.element + (2 * self.shape.element + mask if self.dropout else 0)
        return Operation(
            name=name,
            forward=tuple(forward),
            input_gradient=(MemoryBound(name, "elementwise", backward * elements),),
            saved=mask * elements,
        )

    def activation(self, elements: float | None = None) -> Operation:
        """GELU or ReLU (with its bias, if fused) or the gated product of two halves; of the MLP if no *elements*."""
        elements = float(self.shape.tokens * self.ffn_width) if elements is None else elements
        if self.kind.gated_mlp:
            name = GATED[self.kind.activation]
            return Operation(
                name=name,
                forward=(self.moves(name, "elementwise", 6 * elements),),
                input_gradient=(self.moves(name, "elementwise", 10 * elements),),
                saved=self.kept("gated", elements),
                transient=self.working(3 * elements),
            )
        moved, name = (4 if self.style.fused_pointwise else 6), self.kind.activation.removesuffix("_tanh")
        return Operation(
            name=name,
            forward=(self.moves(name, "gelu", moved * elements),),
            input_gradient=(self.moves(name, "gelu_backward", 6 * elements),),
            saved=self.kept(self.kind.activation, elements),
            transient=self.working(2 * elements),
        )
