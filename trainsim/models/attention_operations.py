"""
The core of attention on one rank: one fused kernel, or products and softmax over scores that go through memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainsim.models.context_parallel import context_parallelisms
from trainsim.models.local_layer import MASK, LocalLayer
from trainsim.models.operations import Attention, Gemm, MemoryBound, Operation
from trainsim.models.shapes import SINGLE


def attention(make: LocalLayer) -> tuple[Operation, ...]:
    """Attention, with the exchanges of keys and values where several ranks share a sequence."""
    if make.shape.cp == 1:
        return _core(make)
    return context_parallelisms[make.shape.context_parallel].attention(make, _core)


def _core(make: LocalLayer) -> tuple[Operation, ...]:
    """The core of attention: one fused kernel, or products and softmax over scores that are kept."""
    return _eager(make) if make.style.attention == "eager" else (_fused(make),)


def _fused(make: LocalLayer) -> Operation:
    """One kernel; two where a slice starts late, or where the sequence has a rest beside its chunks."""
    shape = make.shape
    rows = shape.tokens * make.heads
    saved = make.kept("fused_attention", float(rows * make.kind.value_dim), rows)
    gradients = shape.tokens * (make.query_width + make.heads_width)
    return Operation(
        name="attention",
        forward=tuple(_kernels(make, "forward")),
        input_gradient=tuple(_kernels(make, "backward")),
        saved=saved,
        transient=make.working(gradients) + SINGLE * shape.tokens * make.query_width,  # dQ is summed in fp32
    )


def _kernels(make: LocalLayer, direction: str) -> Iterator[Attention]:
    """The kernels of one pass: what a mask leaves of the sequence, as far as the framework's kernels leave it out.

    A slice that starts late has all of what comes before it (or what a window leaves of that), and the causal part of
    its own. Documents in a sequence are as many keys as a token sees on average, twice over.
    """
    shape, kind, skips = make.shape, make.kind, make.style.causal_skip and make.kind.causal
    whole = Attention(
        "attention",
        make.style.attention,
        shape.micro_batch,
        make.heads,
        make.kv_heads,
        shape.queries,
        shape.keys,
        kind.query_dim,
        causal=skips,
        direction=direction,
        value_dim=None if kind.mla is None else kind.value_dim,
    )
    if shape.document and make.style.causal_skip:
        whole = replace(whole, keys=min(shape.keys, shape.document))
    if not skips:
        yield whole
        return
    if kind.window is not None and kind.window < whole.keys:
        whole = replace(whole, window=kind.window)
    if kind.chunk is not None and kind.chunk < whole.keys:
        yield from _chunks(whole, kind.chunk)
    elif shape.context:
        own = shape.sequence_length
        before = _seen_before(whole.window, shape.context, own)
        yield from (replace(whole, keys=before, causal=False, window=None),) if before else ()
        yield replace(whole, keys=own, window=whole.window if (whole.window or own) < own else None)
    else:
        yield whole


def _chunks(whole: Attention, chunk: int) -> Iterator[Attention]:
    """Attention that stays in parts of *chunk* tokens."""
    full, rest = divmod(whole.queries, chunk)
    if full:
        yield replace(whole, batch=whole.batch * full, queries=chunk, keys=min(chunk, whole.keys))
    if rest:
        yield replace(whole, queries=rest, keys=min(rest, whole.keys))


def _seen_before(window: int | None, context: int, queries: int) -> int:
    """Keys among those before a slice that its queries look at on average.

    >>> _seen_before(None, 4096, 1024), _seen_before(1024, 4096, 1024), _seen_before(1024, 4096, 2048)
    (4096, 512, 256)
    """
    if window is None:
        return context
    level = min(queries, max(0, window - context))  # these see all of them
    falling = min(queries, window)
    pairs = context * level + (falling - level) * (window - (level + falling) / 2)
    return round(pairs / queries)


def _eager(make: LocalLayer) -> tuple[Operation, ...]:
    """Scores, softmax, dropout and context, each through memory; a mask leaves nothing out.

    ALiBi, or a learned bias, is the bias input of the scores' product: written once and read once more. Backward counts
    two products of either shape.
    """
    shape, element, kind = make.shape, make.shape.element, make.kind
    batch, s, q = shape.micro_batch * make.heads, shape.keys, shape.queries
    scores = float(batch) * q * s
    product, back = (Gemm("scores", q, s, d, batch, precision=shape.products) for d in (kind.query_dim, kind.value_dim))
    into, context = (
        Gemm("context", q, d, s, batch, precision=shape.products) for d in (kind.query_dim, kind.value_dim)
    )
    biased = {"alibi": "alibi", "relative": "position bias"}.get(kind.positions)
    bias = (make.moves(biased, "elementwise", 4 * scores),) if biased else ()
    gradients = make.working(shape.tokens * (make.query_width + make.heads_width))
    return (
        Operation(
            name="scores",
            forward=(*bias, product),
            input_gradient=(
                product,
                into,
                make.moves("heads", "transpose", 4.0 * shape.tokens * make.heads_width),
            ),
            transient=gradients + element * scores,
        ),
        *_bent(make, scores),
        *_probabilities(make, scores),
        Operation(
            name="context",
            forward=(context, make.moves("heads", "transpose", 4.0 * shape.tokens * make.value_width)),
            input_gradient=(back, context),
            transient=gradients + element * scores,
        ),
    )


def _bent(make: LocalLayer, scores: float) -> Iterator[Operation]:
    """A softcap of *scores* elements: the tanh is kept."""
    if make.kind.attention_softcap is not None:
        yield Operation(
            name="softcap",
            forward=(make.moves("softcap", "elementwise", 4 * scores),),
            input_gradient=(make.moves("softcap", "elementwise", 6 * scores),),
            saved=make.shape.element * scores,
            transient=make.working(2 * scores),
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
