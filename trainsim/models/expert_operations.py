"""
What stands in the place of the MLP where a layer has experts: the router, the way of tokens to their experts and back,
the experts' products, and experts that every token meets.

Every rank routes its own tokens: with sequence parallelism those of its part of the sequence. With ``etp`` ranks per
expert these gather each other's tokens and sum up their parts, as Megatron-LM does it (megatron/core/transformer/moe).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from trainsim.models.dispatchers import Sent, dispatchers
from trainsim.models.local_layer import LocalLayer
from trainsim.models.mixture import Moe
from trainsim.models.operations import Exchange, Gemm, MemoryBound, Operation, Step, Under, Work
from trainsim.models.shapes import SINGLE

ROUTED = 6  # passes over the router's fp32 scores: softmax, choice, weights of the chosen, counts per expert


def mixture(make: LocalLayer) -> tuple[Operation, ...]:
    """The operations between the norm and the residual addition of a layer with experts, in forward order."""
    assert make.kind.moe is not None
    mix, spread = Mixture(make, make.kind.moe), make.shape.experts
    if spread.shared_overlap and mix.shared:
        return tuple(mix.overlapped())
    return tuple(mix.delayed() if spread.delay_wgrad else mix.in_turn())


@dataclass(frozen=True)
class Mixture:
    """One layer's experts on one rank."""

    make: LocalLayer
    moe: Moe

    @cached_property
    def tokens(self) -> float:
        """Tokens that this rank routes."""
        return self.make.shape.norm_tokens

    @cached_property
    def local(self) -> int:
        """Experts on this rank, or parts of them."""
        return self.moe.experts // self.make.shape.experts.ep

    @cached_property
    def rows(self) -> float:
        """Rows of its experts' products: a token counts once per expert that it is sent to."""
        return self.tokens * self.moe.top_k * self.make.shape.experts.load * self.make.shape.gathered_by

    @cached_property
    def sent(self) -> Sent:
        """What the dispatcher sends, and the copies that it makes."""
        return dispatchers[self.make.shape.experts.dispatcher](self.make, self.moe)

    def in_turn(self) -> Iterator[Operation]:
        """One after the other; shared experts come last, as their results are added."""
        yield self.router()
        yield self.dispatch()
        yield from self.experts()
        yield self.combine()
        yield from self.shared

    def overlapped(self) -> Iterator[Operation]:
        """Shared experts while tokens are on their way: their first product under dispatch, the last under combine."""
        first, *middle, last = self.shared
        yield self.router()
        yield _under(self.dispatch(), first)
        yield from middle
        yield from self.experts()
        yield _under(self.combine(), last)

    def delayed(self) -> Iterator[Operation]:
        """One after the other; weight gradients of experts while gradients of their tokens are on their way back."""
        experts = tuple(self.experts())
        late = tuple(w for o in reversed(experts) for w in o.weight_gradient)
        sent = self.dispatch()
        yield self.router()
        yield replace(sent, input_gradient=tuple(_hidden(sent.input_gradient, late)))
        yield from (replace(o, weight_gradient=()) for o in experts)
        yield self.combine()
        yield from self.shared

    def router(self) -> Operation:
        """Scores of every token for every expert, and the choice of the best."""
        make, moe, n = self.make, self.moe, self.tokens
        scores = float(n * moe.experts)
        product = make.linear("router", moe.experts, make.kind.hidden, "none", low=False, rows=n)
        choice = MemoryBound("routing", "softmax", ROUTED * SINGLE * scores)
        return replace(
            product,
            forward=(*product.forward, choice),
            input_gradient=(choice, *product.input_gradient),
            saved=2 * SINGLE * scores,  # scores and probabilities; the tokens are kept where they are sent
        )

    def dispatch(self) -> Operation:
        """Tokens on their way to the ranks of their experts, and back as gradients."""
        make, sent, kept = self.make, self.sent, self._gathered("dispatch")
        return Operation(
            name="dispatch",
            forward=(*sent.before, *sent.dispatch, *kept.forward, *sent.behind),
            input_gradient=(*sent.behind, *kept.back, *sent.returned, *sent.before),
            saved=make.shape.element * self.tokens * make.kind.hidden,
            transient_forward=make.shape.element * self.rows * make.kind.hidden,
            transient=make.working(2 * self.rows * make.kind.hidden),
        )

    def combine(self) -> Operation:
        """Results on their way back, where each token's are added with their weights."""
        make, sent, summed = self.make, self.sent, self._gathered("combine")
        return Operation(
            name="combine",
            forward=(*sent.behind, *summed.back, *sent.combine, *sent.before),
            input_gradient=(*sent.before, *sent.gradients, *summed.forward, *sent.behind),
            transient=make.working(2 * self.rows * make.kind.hidden),
        )

    def _gathered(self, name: str) -> Around:
        """With several ranks per expert: its tokens gathered, and its parts of results summed."""
        spread, make = self.make.shape.experts, self.make
        if spread.etp == 1:
            return Around()
        if make.shape.gathered_by == 1:  # all of them have all tokens already
            return Around(back=(Exchange(f"{name}.all_reduce", "etp", "all_reduce", make.boundary),))
        nbytes = float(make.shape.element * self.rows * make.kind.hidden)
        return Around(
            forward=(Exchange(f"{name}.all_gather", "etp", "all_gather", nbytes),),
            back=(Exchange(f"{name}.reduce_scatter", "etp", "reduce_scatter", nbytes),),
        )

    def experts(self) -> Iterator[Operation]:
        """The products of all experts of this rank, one grouped kernel each."""
        kind, make = self.make.kind, self.make
        width = self.moe.expert_ffn_hidden // make.shape.experts.etp
        first = self._grouped("expert fc1", width * (2 if kind.gated_mlp else 1), kind.hidden)
        activation = make.activation(float(self.rows * width))
        last = self._grouped("expert fc2", kind.hidden, width)
        if make.style.expert_kernels == "fused":
            first, last = (
                replace(first, input_gradient=_products(first.input_gradient)),
                replace(last, forward=_products(last.forward)),
            )
            activation = replace(activation, forward=(), input_gradient=())
        yield from (first, activation, last)

    def _grouped(self, name: str, n: int, k: int) -> Operation:
        """A product of *k* inputs and *n* outputs per expert; each has its rows, as many as the others."""
        each = max(1, round(self.rows / self.local))
        product = self.make.linear(name, n, k, "none", rows=each)

        def all_of_them(w: Step) -> Step:
            if isinstance(w, Gemm):
                return replace(w, batch=self.local, grouped=self.make.style.expert_kernels == "grouped")
            return replace(w, nbytes=w.nbytes * self.local) if isinstance(w, MemoryBound) else w

        return replace(
            product,
            forward=tuple(map(all_of_them, product.forward)),
            input_gradient=tuple(map(all_of_them, product.input_gradient)),
            weight_gradient=tuple(map(all_of_them, product.weight_gradient)),
            output=product.output * self.local,
            saved=product.saved * self.local,
            transient=self.make.working(self.rows * (n + k)) + self.make.weight_gradient(name, n * k * self.local)[0],
            resident=product.resident * self.local,
        )

    @cached_property
    def shared(self) -> tuple[Operation, ...]:
        """Experts that every token meets: an MLP beside the others, cut over tensor parallelism."""
        kind, make = self.make.kind, self.make
        if not self.moe.shared_ffn_hidden:
            return ()
        width = self.moe.shared_ffn_hidden // make.shape.tp
        return (
            make.linear("shared fc1", width * (2 if kind.gated_mlp else 1), kind.hidden, "column"),
            make.activation(float(make.shape.tokens * width)),
            make.linear("shared fc2", kind.hidden, width, "row"),
        )


@dataclass(frozen=True)
class Around:
    """What the ranks of an expert exchange on the way to it (``forward``) and behind it (``back``)."""

    forward: tuple[Exchange, ...] = ()
    back: tuple[Exchange, ...] = ()


def _products(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """*steps* without casts: what their product reads came out of the kernel before in low precision."""
    return tuple(w for w in steps if isinstance(w, Gemm))


def _under(exchange: Operation, product: Operation) -> Operation:
    """*exchange* with the kernels of *product* under the first that experts' ranks exchange, forward and backward.

    A product that tensor parallelism cuts keeps its collective, which stands in front of the exchange.
    """
    return replace(
        exchange,
        forward=tuple(_hidden(exchange.forward, product.forward)),
        input_gradient=tuple(_hidden(exchange.input_gradient, product.input_gradient)),
        weight_gradient=product.weight_gradient,
        parallel=product.parallel,
        boundary=product.boundary,
        saved=exchange.saved + product.saved,
        transient_forward=exchange.transient_forward + product.transient_forward,
        transient=exchange.transient + product.transient,
        resident=product.resident,
    )


def _hidden(steps: tuple[Step, ...], beside: tuple[Step, ...]) -> Iterator[Step]:
    """*steps* with the kernels of *beside* under the first collective along ``ep``."""
    kernels: tuple[Work, ...] = tuple(w for w in beside if not isinstance(w, Exchange | Under))
    for step in steps:
        if kernels and isinstance(step, Exchange) and step.axis == "ep":
            yield Under(step, kernels)
            kernels = ()
        else:
            yield step
    yield from kernels
