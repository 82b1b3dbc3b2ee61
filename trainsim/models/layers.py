"""
The operations of a layer, of the embedding and of the head: shapes, bytes moved and bytes kept, on one rank.

Bytes moved are those of fused 16-bit kernels as Megatron-LM has them, and twice that in 32 bits. Bytes kept from
forward to backward are the framework's table (``trainsim.frameworks.kept``); Megatron-LM's adds up to the closed forms
of Korthikanti et al. 2022 (arXiv 2205.05198).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trainsim.models.counts import megatron_flops, parameters_per_rank
from trainsim.models.layer_kind import GATED, LayerKind
from trainsim.models.lora import adapted
from trainsim.models.operations import Attention, Gemm, MemoryBound, Operation, Work
from trainsim.models.recompute import selective
from trainsim.models.shapes import LOW_PRECISION, Shape, Style, style_of
from trainsim.models.transformer import Transformer

__all__ = [
    "Shape",
    "Style",
    "embedding_operations",
    "head_operations",
    "layer_operations",
    "megatron_flops",
    "parameters_per_rank",
    "style_of",
]

MASK = 1  # bytes of a dropout mask's element
SINGLE = 4  # bytes of a number in single precision


@lru_cache(maxsize=1024)
def layer_operations(kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """One transformer layer of this *kind* in forward order: norm, attention, norm, MLP."""
    return selective[style.selective](adapted(_layer(kind, shape, style), kind, shape, style), kind, shape)


def _layer(kind: LayerKind, shape: Shape, style: Style) -> tuple[Operation, ...]:
    make = _Operations(kind, shape, style)
    return (
        make.norm("norm1"),
        make.linear("qkv", make.heads_width, kind.hidden, "column", keeps=make.kept_width * shape.element),
        *make.rope(),
        *make.attention(),
        make.linear("proj", kind.hidden, make.query_width, "row"),
        make.residual("add1"),
        make.norm("norm2"),
        make.linear("fc1", make.fc1_width, kind.hidden, "column"),
        make.activation(),
        make.linear("fc2", kind.hidden, make.ffn_width, "row"),
        make.residual("add2"),
    )


@lru_cache(maxsize=1024)
def embedding_operations(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """Look-up, positions and, if the model has it, the norm after them."""
    make = _Operations(model.kind, shape, style)
    h, table = model.hidden, shape.padded_vocab // shape.tp * model.hidden
    dense: tuple[Work, ...] = ()  # a framework that accumulates outside the GEMMs adds a whole table per microbatch
    if not style.accumulates:
        dense = (MemoryBound("embedding table", "elementwise", 6.0 * table),)
    lookup = Operation(
        name="embedding",
        forward=(make.moves("embedding", "embedding", 6.0 * shape.tokens * h),),
        weight_gradient=(make.moves("embedding", "embedding_backward", 8.0 * shape.tokens * h), *dense),
        parallel="row",
        boundary=make.boundary,
        transient=make.boundary + make.weight_gradient("embedding", table)[0],
    )
    operations = (lookup, make.norm("embedding norm")) if model.embedding_norm else (lookup,)
    return adapted(operations, model.kind, shape, style)


@lru_cache(maxsize=1024)
def head_operations(model: Transformer, shape: Shape, style: Style) -> tuple[Operation, ...]:
    """Final norm, logits and cross-entropy."""
    make = _Operations(model.kind, shape, style)
    columns = shape.padded_vocab // shape.tp
    logits, held = float(shape.tokens * columns), style.saved.logits
    loss = Operation(
        name="loss",
        forward=(MemoryBound("loss", "cross_entropy", 0.7 * style.loss_bytes_per_logit * logits),),
        input_gradient=(MemoryBound("loss", "cross_entropy", 0.3 * style.loss_bytes_per_logit * logits),),
        reduced=(4.0 * shape.tokens,) * 3,  # maximum, target's logit, sum of exponentials: fp32 per token
        saved=held.kept * logits,
        transient_forward=held.forward * logits,
        transient=held.backward * logits,
    )
    logits_product = make.linear("logits", columns, model.hidden, "column", low=False)
    return adapted((make.norm("final norm"), logits_product, loss), model.kind, shape, style)


class _Operations:
    """Widths of one rank and the operations that are made of them."""

    def __init__(self, kind: LayerKind, shape: Shape, style: Style):
        self.kind, self.shape, self.style = kind, shape, style
        self.heads = max(1, kind.heads // shape.tp)
        self.kv_heads = max(1, kind.kv_heads // shape.tp)
        self.query_width = self.heads * kind.head_dim
        self.heads_width = self.query_width + 2 * self.kv_heads * kind.head_dim
        repeated = style.attention == "eager" and style.saved.expanded_heads and self.kv_heads > 1
        kept_heads = self.heads if repeated else self.kv_heads  # one head for all is broadcast, not repeated
        self.kept_width = self.query_width + 2 * kept_heads * kind.head_dim
        self.ffn_width = kind.ffn_hidden // shape.tp
        self.fc1_width = self.ffn_width * (2 if kind.gated_mlp else 1)
        self.boundary = float(shape.element * shape.tokens * kind.hidden)
        self.dropout = style.dropout and kind.dropout

    def moves(self, name: str, kind: str, nbytes: float) -> MemoryBound:
        """A kernel that moves *nbytes* in 16 bits, twice that in 32."""
        return MemoryBound(name, kind, nbytes * self.shape.element / 2)

    def norm(self, name: str) -> Operation:
        """LayerNorm or RMSNorm: reads and writes once forward, five times that backward."""
        elements = self.shape.norm_tokens * self.kind.hidden
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

    def linear(self, name: str, n: int, k: int, parallel: str, *, keeps: float = 0.0, low: bool = True) -> Operation:
        """A linear layer of *k* inputs and *n* outputs here; keeps its input and *keeps* bytes per token."""
        shape, style = self.shape, self.style
        m = shape.tokens
        precision = None if low else shape.products
        inputs = (shape.norm_tokens if parallel == "column" else m) * k
        casts = low and shape.precision in LOW_PRECISION
        made, resident = self.weight_gradient(name, n * k)
        gathered = m * k if parallel == "column" and shape.sequence_parallel and shape.tp > 1 else 0  # the input
        return Operation(
            name=name,
            forward=(
                *([MemoryBound(f"{name} cast", "cast", 4.0 * m * k)] if casts else []),
                Gemm(name, m, n, k, precision=precision),
            ),
            input_gradient=(
                *([MemoryBound(f"{name} cast", "cast", 4.0 * m * n)] if casts else []),
                Gemm(f"{name} dgrad", m, k, n, role="input", precision=precision),
            ),
            weight_gradient=(
                Gemm(f"{name} wgrad", n, k, m, role="weight", accumulates=style.accumulates, precision=precision),
                *self._gradient_kernels(name, n, k, parallel),
            ),
            parallel=parallel,
            boundary=self.boundary,
            output=float(shape.element * n * (m if parallel == "column" else shape.norm_tokens)),
            saved=inputs * (shape.linear_element if low else shape.element) + keeps * m,
            transient=self.working(m * (n + k) + gathered) + made,
            resident=resident,
        )

    def _gradient_kernels(self, name: str, n: int, k: int, parallel: str) -> Iterator[Work]:
        """What a weight gradient needs beside its GEMM: the bias's sum over tokens, and the addition to the buffer."""
        biased = name != "logits" and (self.kind.biases == "all" or (self.kind.biases == "qkv" and name == "qkv"))
        if biased and self.style.bias_kernels:
            tokens = self.shape.tokens if parallel == "column" else self.shape.norm_tokens
            yield self.moves(f"{name} bias gradient", "bias_gradient", 2.0 * tokens * n)
        if self.style.accumulation_bytes > 0:
            kind = "elementwise" if name == "logits" else "accumulation"
            yield MemoryBound(f"{name} accumulation", kind, self.style.accumulation_bytes * n * k)

    def residual(self, name: str) -> Operation:
        """Dropout and residual addition; two kernels where they are not fused (with the bias)."""
        elements = self.shape.norm_tokens * self.kind.hidden
        mask = MASK if self.dropout else 0
        forward: list[Work] = [MemoryBound(name, "elementwise", (3 * self.shape.element + mask) * elements)]
        if not self.style.fused_pointwise:
            forward.append(self.moves(f"{name} unfused", "elementwise", 5 * elements))
        backward = 3 * self.shape.element + (2 * self.shape.element + mask if self.dropout else 0)
        return Operation(
            name=name,
            forward=tuple(forward),
            input_gradient=(MemoryBound(name, "elementwise", backward * elements),),
            saved=mask * elements,
        )

    def activation(self) -> Operation:
        """GELU or ReLU (with its bias, if fused) or the gated product of two halves."""
        elements = float(self.shape.tokens * self.ffn_width)
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

    def rope(self) -> Iterator[Operation]:
        """Rotation of queries and keys, in place of a model with rotary positions."""
        if self.kind.positions == "rotary":
            work = (self.moves("rope", "rope", 4.0 * self.shape.tokens * self.heads_width),)
            yield Operation(name="rope", forward=work, input_gradient=work)

    def attention(self) -> tuple[Operation, ...]:
        """The core of attention: one fused kernel, or products and softmax over scores that are kept."""
        return self._eager() if self.style.attention == "eager" else (self._fused(),)

    def _fused(self) -> Operation:
        """One kernel; of a slice that starts late two: all of what comes before it, and the causal part of its own."""
        shape, causal = self.shape, self.style.causal_skip

        def work(direction: str) -> tuple[Work, ...]:
            if causal and shape.context:
                before, own = shape.context, shape.sequence_length
                return kernel(direction, before, causal=False), kernel(direction, own, causal=True)
            return (kernel(direction, shape.keys, causal=causal),)

        def kernel(direction: str, keys: int, *, causal: bool) -> Attention:
            return Attention(
                "attention",
                self.style.attention,
                shape.micro_batch,
                self.heads,
                self.kv_heads,
                shape.queries,
                keys,
                self.kind.head_dim,
                causal=causal,
                direction=direction,
            )

        rows = shape.tokens * self.heads
        saved = self.kept("fused_attention", float(rows * self.kind.head_dim), rows)
        gradients = shape.tokens * (self.query_width + self.heads_width)
        return Operation(
            name="attention",
            forward=work("forward"),
            input_gradient=work("backward"),
            saved=saved,
            transient=self.working(gradients) + SINGLE * shape.tokens * self.query_width,  # dQ is summed in fp32
        )

    def _eager(self) -> tuple[Operation, ...]:
        """Scores, softmax, dropout and context, each through memory.

        ALiBi is the bias input of the scores' product: written once and read once more. Backward counts two products
        of either shape.
        """
        shape, element = self.shape, self.shape.element
        batch, s, q, d = shape.micro_batch * self.heads, shape.keys, shape.queries, self.kind.head_dim
        scores = float(batch) * q * s
        product = Gemm("scores", q, s, d, batch, precision=shape.products)
        context = Gemm("context", q, d, s, batch, precision=shape.products)
        alibi = (self.moves("alibi", "elementwise", 4 * scores),) if self.kind.positions == "alibi" else ()
        gradients = self.working(shape.tokens * (self.query_width + self.heads_width))
        return (
            Operation(
                name="scores",
                forward=(*alibi, product),
                input_gradient=(
                    product,
                    context,
                    self.moves("heads", "transpose", 4.0 * shape.tokens * self.heads_width),
                ),
                transient=gradients + element * scores,
            ),
            *self._probabilities(scores),
            Operation(
                name="context",
                forward=(context, self.moves("heads", "transpose", 4.0 * shape.tokens * self.query_width)),
                input_gradient=(product, context),
                transient=gradients + element * scores,
            ),
        )

    def _probabilities(self, scores: float) -> Iterator[Operation]:
        """Softmax of *scores* elements, and dropout."""
        element, passes, softmax = self.shape.element, self.style.softmax_passes, self.style.saved.of("softmax")
        copied = softmax.fp32 and element < SINGLE and not self.dropout  # in 16 bits, for the product that follows
        yield Operation(
            name="softmax",
            forward=(self.moves("softmax", "softmax", 4 * scores * passes),),
            input_gradient=(self.moves("softmax", "softmax", 6 * scores * passes),),
            saved=softmax.nbytes(scores, element=element) + (element * scores if copied else 0.0),
            transient=self.working(0.0) + 2 * (SINGLE if softmax.fp32 else element) * scores,
        )
        if self.dropout:
            work = (MemoryBound("attention dropout", "score_dropout", (2 * element + MASK) * scores),)
            saved, transient = (element + MASK) * scores, self.working(2 * scores)
            yield Operation(
                name="attention dropout", forward=work, input_gradient=work, saved=saved, transient=transient
            )
