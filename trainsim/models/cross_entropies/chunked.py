"""
The head's product and the loss chunk by chunk of tokens, of which only one at a time is in fp32.

torchtune (modules/loss/ce_chunked_output_loss.py): the output projection is applied to 8 chunks, whose 16-bit logits
all stay until their backward; each is cast to fp32 on its own. A loss that is compiled keeps those 16-bit logits and
makes the rest again; an eager one keeps the log-softmax of every chunk. Gradients of the weight, one per chunk, are
added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainsim.models.cross_entropies import BACKWARD, FORWARD, Head, cross_entropies
from trainsim.models.cross_entropies.standard import standard
from trainsim.models.operations import Gemm, MemoryBound, Operation, Step

USUAL = 8
"""Chunks of torchtune's loss (num_output_chunks)."""


@cross_entropies.register("chunked")
def chunked(head: Head) -> tuple[Operation, ...]:
    """The product in chunks, and the loss in chunks; one chunk is the standard loss."""
    rows = head.rows(head.chunks or USUAL)
    return standard(head) if len(rows) == 1 else (_product(head, rows), _loss(head, rows))


def _product(head: Head, rows: Sequence[int]) -> Operation:
    """The products of all chunks; the gradients that each makes of the weight are summed."""
    product, element, columns = head.product, head.make.shape.element, head.columns
    added: tuple[Step, ...] = ()
    if product.weight_gradient and head.trained and not head.make.style.accumulates:
        nbytes = 3.0 * element * columns * head.model.embedding_width * (len(rows) - 1)
        added = (MemoryBound("logits gradient sum", "elementwise", nbytes),)
    return replace(
        product,
        forward=tuple(_cut(product.forward, rows)),
        input_gradient=tuple(_cut(product.input_gradient, rows)),
        weight_gradient=(*_cut(product.weight_gradient, rows), *added),
    )


def _cut(steps: Sequence[Step], rows: Sequence[int]) -> Iterator[Step]:
    """The products of *steps* chunk by chunk; what else there is stays whole."""
    for step in steps:
        if isinstance(step, Gemm):
            yield from (replace(step, k=n) if step.role == "weight" else replace(step, m=n) for n in rows)
        else:
            yield step


def _loss(head: Head, rows: Sequence[int]) -> Operation:
    """The losses of all chunks, and what they keep."""
    style, tokens, element = head.make.style, head.make.shape.tokens, head.make.shape.element
    held, logits, largest = style.saved.logits, float(tokens * head.width), float(rows[0] * head.width)
    ahead, back = head.softcap_passes
    bent = element * (ahead > 0)  # the tanh, which is kept where nothing is compiled
    kept = min(held.kept, element) if style.compiled else held.kept + bent
    whole = 0.0 if style.compiled else min(element, held.forward)  # 16-bit logits beside what is kept
    beside = held.kept + bent - kept  # of one chunk
    forward: list[Step] = []
    backward: list[Step] = []
    for n in rows:
        forward += [*head.gather(n), *head.bent(ahead, n), head.loss(FORWARD, n)]
        backward += [head.loss(BACKWARD, n), *head.bent(back, n)]
    return Operation(
        name="loss",
        forward=tuple(forward),
        input_gradient=tuple(backward),
        reduced=tuple(nbytes for n in rows for nbytes in head.sums(n)),
        saved=kept * logits,
        transient_forward=whole * logits + (beside + held.forward - whole) * largest,
        transient=(beside + held.backward) * largest,
    )
