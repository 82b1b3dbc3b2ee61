"""
What becomes of the logits: one file per way to make the cross entropy of a micro-batch and its gradients.

A way takes the head of a model on one rank and gives the operations behind the final norm. Whichever it is, every logit
is made once and every product is as large in all; ways differ in how many logits are there at once, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Exchange, MemoryBound, Operation
from trainsim.models.transformer import Transformer
from trainsim.registry import Registry

FORWARD, BACKWARD = 0.7, 0.3  # parts of the loss's traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head on one rank: ``product`` makes its columns of the logits. ``chunks`` is how often a way cuts the tokens
    of a micro-batch (None: as often as it usually does)."""

    make: LocalLayer
    model: Transformer
    product: Operation
    chunks: int | None = None

    @property
    def columns(self) -> int:
        """Columns of the logits that this rank makes."""
        return self.make.shape.padded_vocab // self.make.shape.tp

    @property
    def cut(self) -> bool:
        """Whether the loss works on these columns only; else they are gathered before it."""
        return self.make.style.loss_parallel or self.make.shape.tp == 1

    @property
    def width(self) -> int:
        """Columns that the loss works on here."""
        return self.columns * (1 if self.cut else self.make.shape.tp)

    @property
    def trained(self) -> bool:
        """Whether the head's weight has a gradient."""
        return self.make.kind.lora is None

    @property
    def softcap_passes(self) -> tuple[float, float]:
        """Bytes per logit that a tanh of the logits moves forward and backward, in 16 bits; 0 where there is none."""
        return (0.0, 0.0) if self.model.logits_softcap is None else (4.0, 6.0)

    def rows(self, chunks: int) -> tuple[int, ...]:
        """Tokens of each chunk, as torch.chunk cuts them: all as long but the last, which may be shorter.

        There are fewer chunks where tokens do not suffice.
        """
        return parts_of(self.make.shape.tokens, chunks)

    def gather(self, rows: int) -> tuple[Exchange, ...]:
        """The collective after which a loss that is not cut has the logits of *rows* tokens."""
        nbytes = self.make.shape.element * float(rows * self.width)
        return () if self.cut else (Exchange("logits gather", "tp", "all_gather", nbytes),)

    def sums(self, rows: int) -> tuple[float, ...]:
        """Bytes that a loss over cut columns sums up: per token maximum, target's logit and sum of exponentials."""
        return (4.0 * rows,) * 3 if self.cut else ()

    def loss(self, share: float, rows: int) -> MemoryBound:
        """A *share* of the loss's traffic over the logits of *rows* tokens."""
        logits = float(rows * self.width)
        return MemoryBound("loss", "cross_entropy", share * self.make.style.loss_bytes_per_logit * logits)

    def bent(self, passes: float, rows: int) -> Iterator[MemoryBound]:
        """The traffic of the tanh over the logits of *rows* tokens, if the model has one."""
        if passes:
            yield self.make.moves("softcap", "elementwise", passes * float(rows * self.width))


def parts_of(tokens: int, chunks: int) -> tuple[int, ...]:
    """*tokens* in so many *chunks*, as torch.chunk cuts them.

    >>> parts_of(10, 4), parts_of(3, 8)
    ((3, 3, 3, 1), (1, 1, 1))
    """
    size = -(-tokens // chunks)
    whole, rest = divmod(tokens, size)
    return (size,) * whole + (rest,) * (rest > 0)


Way = Callable[[Head], tuple[Operation, ...]]
"""The operations of a head behind the final norm."""

cross_entropies: Registry[Way] = Registry("cross entropy", __name__)
