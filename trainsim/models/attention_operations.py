"""
The core of attention on one rank: one fused kernel, or products and softmax over scores that go through memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.models.local_layer import MASK, LocalLayer
from trainsim.models.operations import Attention, Gemm, MemoryBound, Operation, Work

SINGLE = 4  # bytes of a number in single precision


def rope(make: LocalLayer) -> Iterator[Operation]:
    """Rotation of queries and keys, in place of a model with rotary positions."""
    if make.kind.positions == "rotary":
        work = (make.moves("rope", "rope", 4.0 * make.shape.tokens * make.heads_width),)
        yield Operation(name="rope", forward=work, input_gradient=work)


def attention(make: LocalLayer) -> tuple[Operation, ...]:
    """The core of attention: one fused kernel, or products and softmax over scores that are kept."""
    return _eager(make) if make.style.attention == "eager" else (_fused(make),)


def _fused(make: LocalLayer) -> Operation:
    """One kernel; of a slice that starts late two: all of what comes before it, and the causal part of its own."""
    shape, causal = make.shape, make.style.causal_skip

    def work(direction: str) -> tuple[Work, ...]:
        if causal and shape.context:
            before, own = shape.context, shape.sequence_length
            return kernel(direction, before, causal=False), kernel(direction, own, causal=True)
        return (kernel(direction, shape.keys, causal=causal),)

    def kernel(direction: str, keys: int, *, causal: bool) -> Attention:
        return Attention(
            "attention",
            make.style.attention,
            shape.micro_batch,
            make.heads,
            make.kv_heads,
            shape.queries,
            keys,
            make.kind.head_dim,
            causal=causal,
            direction=direction,
        )

    rows = shape.tokens * make.heads
    saved = make.kept("fused_attention", float(rows * make.kind.head_dim), rows)
    gradients = shape.tokens * (make.query_width + make.heads_width)
    return Operation(
        name="attention",
        forward=work("forward"),
        input_gradient=work("backward"),
        saved=saved,
        transient=make.working(gradients) + SINGLE * shape.tokens * make.query_width,  # dQ is summed in fp32
    )


def _eager(make: LocalLayer) -> tuple[Operation, ...]:
    """Scores, softmax, dropout and context, each through memory.

    ALiBi is the bias input of the scores' product: written once and read once more. Backward counts two products
    of either shape.
    """
    shape, element = make.shape, make.shape.element
    batch, s, q, d = shape.micro_batch * make.heads, shape.keys, shape.queries, make.kind.head_dim
    scores = float(batch) * q * s
    product = Gemm("scores", q, s, d, batch, precision=shape.products)
    context = Gemm("context", q, d, s, batch, precision=shape.products)
    alibi = (make.moves("alibi", "elementwise", 4 * scores),) if make.kind.positions == "alibi" else ()
    gradients = make.working(shape.tokens * (make.query_width + make.heads_width))
    return (
        Operation(
            name="scores",
            forward=(*alibi, product),
            input_gradient=(
                product,
                context,
                make.moves("heads", "transpose", 4.0 * shape.tokens * make.heads_width),
            ),
            transient=gradients + element * scores,
        ),
        *_probabilities(make, scores),
        Operation(
            name="context",
            forward=(context, make.moves("heads", "transpose", 4.0 * shape.tokens * make.query_width)),
            input_gradient=(product, context),
            transient=gradients + element * scores,
        ),
    )


def _probabilities(make: LocalLayer, scores: float) -> Iterator[Operation]:
    """Softmax of *scores* elements, and dropout."""
    element, passes, softmax = make.shape.element, make.style.softmax_passes, make.style.saved.of("softmax")
    copied = softmax.fp32 and element < SINGLE and not make.dropout  # in 16 bits, for the product that follows
    yield Operation(
        name="softmax",
        forward=(make.moves("softmax", "softmax", 4 * scores * passes),),
        input_gradient=(make.moves("softmax", "softmax", 6 * scores * passes),),
        saved=softmax.nbytes(scores, element=element) + (element * scores if copied else 0.0),
        transient=make.working(0.0) + 2 * (SINGLE if softmax.fp32 else element) * scores,
    )
    if make.dropout:
        work = (MemoryBound("attention dropout", "score_dropout", (2 * element + MASK) * scores),)
        saved, transient = (element + MASK) * scores, make.working(2 * scores)
        yield Operation(name="attention dropout", forward=work, input_gradient=work, saved=saved, transient=transient)
