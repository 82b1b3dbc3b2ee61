"""
DeepSpeed-Ulysses (Jacobs et al. 2023, arXiv 2309.14509): a rank has all tokens of some heads while it attends, and all
heads of some tokens otherwise. All-to-alls of queries, keys, values and of the result change from one to the other.

Where there are fewer heads of keys than ranks, a head is sent to all ranks whose queries need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from trainsim.models.context_parallel import Complaint, ContextParallelism, Core, context_parallelisms
from trainsim.models.context_parallel.numbers import Widths, widths
from trainsim.models.layer_kind import LayerKind
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Exchange, Operation, Step
from trainsim.models.shapes import Shape

Part = tuple[str, int] | None


def ulysses(make: LocalLayer, core: Core) -> tuple[Operation, ...]:
    """Attention over the whole sequence on a part of the heads."""
    return by_heads(make, core, make.shape.cp)


def by_heads(make: LocalLayer, core: Core, ranks: int, part: Part = None) -> tuple[Operation, ...]:
    """The *core* of attention on the heads that one of *ranks* gets, between all-to-alls over them (a *part* of the
    axis, or all of it)."""
    shape = make.shape
    inner = LocalLayer(make.kind, replace(shape, tp=shape.tp * ranks, cp=shape.cp // ranks), make.style)
    sent, tokens = _sent(make, ranks), shape.tokens
    beside = make.working(0.0) - inner.working(0.0)  # the residual stream's gradient is cut along the sequence
    before = {"queries": sent.queries, "keys": sent.keys, "values": sent.values}
    copied = float(shape.element * tokens * (sent.keys_and_values - widths(make).keys_and_values))
    result = 0.0 if make.style.attention == "eager" else float(shape.element * tokens * sent.output)
    return (
        _exchange(make, "to heads", before, part, kept=copied),
        *(replace(o, transient=max(0.0, o.transient + beside)) for o in core(inner)),
        _exchange(make, "to tokens", {"result": sent.output}, part, kept=result),  # a fused kernel needs it again
    )


def _sent(make: LocalLayer, ranks: int) -> Widths:
    """Numbers per token that a rank sends and gets, with a key head for every rank at least."""
    width = widths(make)
    copies = max(1, ranks // make.kv_heads)
    return width._replace(keys=width.keys * copies, values=width.values * copies)


def _exchange(make: LocalLayer, name: str, sent: dict[str, int], part: Part, kept: float = 0.0) -> Operation:
    """An all-to-all of each tensor, which is put in order before and after; backward the gradients go the way back."""
    numbers = {what: make.shape.tokens * width for what, width in sent.items()}
    largest = float(make.shape.element * max(numbers.values()))

    def steps(prefix: str) -> Iterator[Step]:
        for what, count in numbers.items():
            order = make.moves(f"{prefix}{what} in order", "transpose", 4.0 * count)
            yield order
            yield Exchange(f"{prefix}{what}", "cp", "all_to_all", float(make.shape.element * count), part)
            yield order

    return Operation(
        name=name,
        forward=tuple(steps("")),
        input_gradient=tuple(steps("gradients of ")),
        saved=kept,
        transient_forward=2.0 * largest,  # what is sent and what is received
        transient=make.working(0.0) + 2.0 * largest,
    )


def heads_complaints(kind: LayerKind, shape: Shape, ranks: int, key: str) -> Iterator[Complaint]:
    """Heads that do not divide by *ranks*, the number that *key* gives, or that come from a latent vector."""
    if kind.mla is not None:
        reason = "all-to-alls are not simulated with latent attention (Transformer Engine has none); ring would work"
        yield "parallel.context_parallel", reason
    heads, kv_heads = kind.heads // shape.tp, max(1, kind.kv_heads // shape.tp)
    name = key.rpartition(".")[2]
    if heads % ranks:
        works = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0 and shape.cp % n == 0)
        whose = f"{heads} heads of a rank" if shape.tp > 1 else f"{heads} heads"
        reason = f"{whose} are not divisible by {name}={ranks}; {works or 1} would work, or context_parallel: ring"
        yield key, reason
    elif kv_heads % ranks and ranks % kv_heads:
        reason = f"{kv_heads} key-value heads of a rank neither divide by {name}={ranks} nor divide it"
        yield key, f"{reason}; {gcd(kv_heads, ranks)} would work, or context_parallel: ring"


def refuses(kind: LayerKind, shape: Shape, attention: str) -> Iterator[Complaint]:
    """Heads that do not divide."""
    yield from heads_complaints(kind, shape, shape.cp, "parallel.cp")


context_parallelisms.register("ulysses", "a2a")(ContextParallelism(attention=ulysses, refuses=refuses))
