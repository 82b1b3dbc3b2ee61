"""
The loss and its gradients in one forward, chunk by chunk: logits of more than a chunk are never there.

Liger Kernel (liger_kernel/ops/fused_linear_cross_entropy.py): per chunk of tokens a product makes the logits, a kernel
replaces them by their gradients, and two products make the gradient of the hidden states and add to that of the weight;
both gradients stay until the backward, which only scales them. A chunk has about as many logits as the hidden states of
the micro-batch have numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from trainsim.models.cross_entropies import Head, cross_entropies, parts_of
from trainsim.models.operations import Gemm, MemoryBound, Operation, Step

PASSES = 3.0  # over a chunk's logits: read for the sum of exponentials, read and overwritten by their gradient
SUM = 3.0  # of a chunk's gradient of the weight: both are read, one is written


@cross_entropies.register("fused_linear")
def fused_linear(head: Head) -> tuple[Operation, ...]:
    """One operation, whose forward makes the gradients too."""
    shape, product, width = head.make.shape, head.product, head.model.embedding_width
    rows = head.rows(head.chunks or usual_chunks(shape.tokens, head.width, width))
    element, tokens = shape.element, shape.tokens
    hidden, weight = element * tokens * width, element * head.columns * width if head.trained else 0
    scaled = [head.make.moves("logits gradients", "elementwise", 4.0 * (hidden + weight) / element)]
    added = [s for s in product.weight_gradient if isinstance(s, MemoryBound)] if head.trained else []
    fused = replace(
        product,
        forward=tuple(step for n in rows for step in _chunk(head, n)),
        input_gradient=(*scaled, *added),
        weight_gradient=(),
        reduced=tuple(nbytes for n in rows for nbytes in head.sums(n)),
        output=0.0,
        saved=float(hidden + weight),
        transient_forward=float(element * rows[0] * head.width),
        transient=head.make.working(0.0),
    )
    return (fused,)


def _chunk(head: Head, rows: int) -> Iterator[Step]:
    """What is done with a chunk of *rows* tokens."""
    product, trained = head.product, head.trained
    gemms = [s for s in (*product.forward, *product.input_gradient, *product.weight_gradient) if isinstance(s, Gemm)]
    yield from (replace(gemm, m=rows) for gemm in gemms if gemm.role == "forward")
    yield from head.gather(rows)
    yield head.make.moves("loss", "cross_entropy", 2.0 * PASSES * rows * head.width)
    yield from (replace(gemm, m=rows) for gemm in gemms if gemm.role == "input")
    for gemm in (gemm for gemm in gemms if gemm.role == "weight" and trained):
        yield replace(gemm, k=rows)
        yield head.make.moves("logits gradient sum", "elementwise", 2.0 * SUM * gemm.m * gemm.n)


def usual_chunks(tokens: int, vocabulary: int, hidden: int) -> int:
    """Liger's number of chunks: tokens over the next power of two of tokens x hidden / vocabulary.

    >>> usual_chunks(8192, 128256, 3072), usual_chunks(4096, 32000, 4096)
    (32, 8)
    """
    rows = ceil(tokens / ceil(vocabulary / hidden))
    return len(parts_of(tokens, ceil(tokens / (1 << (rows - 1).bit_length()))))
