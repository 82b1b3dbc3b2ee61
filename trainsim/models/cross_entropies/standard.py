"""The logits of all tokens of a micro-batch at once, then the loss over them, as the framework does it."""

from __future__ import annotations

from trainsim.models.cross_entropies import BACKWARD, FORWARD, Head, cross_entropies
from trainsim.models.operations import Operation


@cross_entropies.register("standard")
def standard(head: Head) -> tuple[Operation, ...]:
    """The product, a tanh where the model has one, and the loss."""
    tokens, held = head.make.shape.tokens, head.make.style.saved.logits
    logits = float(tokens * head.width)
    loss = Operation(
        name="loss",
        forward=(*head.gather(tokens), head.loss(FORWARD, tokens)),
        input_gradient=(head.loss(BACKWARD, tokens),),
        reduced=head.sums(tokens),
        saved=held.kept * logits,
        transient_forward=held.forward * logits,
        transient=held.backward * logits,
    )
    return head.product, *_softcap(head, logits), loss


def _softcap(head: Head, logits: float) -> tuple[Operation, ...]:
    """A tanh of the logits, which is kept."""
    ahead, back = head.softcap_passes
    if not ahead:
        return ()
    tokens = head.make.shape.tokens
    return (
        Operation(
            name="softcap",
            forward=tuple(head.bent(ahead, tokens)),
            input_gradient=tuple(head.bent(back, tokens)),
            saved=head.make.shape.element * logits,
        ),
    )
