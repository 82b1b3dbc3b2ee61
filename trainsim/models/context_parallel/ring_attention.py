"""
Ring attention (Liu et al. 2023, arXiv 2310.01889), as Transformer Engine does it point to point.

Keys and values go round: in each step a rank works on those that it has and sends them on meanwhile. Under a causal
mask rank i has chunks i and 2 cp - 1 - i of the sequence, so that all have the same work: in the first step the causal
part of its own tokens, in every later one half of a rectangle. Backward they go round once more, and gradients behind
them, which every rank adds to (NVIDIA/TransformerEngine, AttnFuncWithCPAndKVP2P).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainsim.models.context_parallel import ContextParallelism, Core, context_parallelisms
from trainsim.models.context_parallel.numbers import kernels, needs_plain_attention, widths
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Attention, Exchange, MemoryBound, Operation, Step, Under
from trainsim.models.shapes import SINGLE

Part = tuple[str, int] | None


def ring(make: LocalLayer, core: Core, part: Part = None) -> tuple[Operation, ...]:
    """Fused attention in as many steps as ranks share the sequence; *part*: of those of its axis."""
    (fused,) = core(make)
    width, tokens, steps = widths(make), make.shape.tokens, make.shape.cp
    element = make.shape.element
    held = element * steps * (width.keys_and_values + width.output) + SINGLE * width.output
    received = element * (4.0 * width.keys_and_values + width.queries)  # two buffers of both; a step's gradients
    return (
        replace(
            fused,
            forward=(*_forward(make, kernels(fused)[0], part), *_merge(make)),
            input_gradient=tuple(_backward(make, kernels(fused)[1], part)),
            transient_forward=fused.transient_forward + tokens * held,  # all steps' parts, until they are merged
            transient=fused.transient + tokens * received,
        ),
    )


def _pieces(make: LocalLayer, kernel: Attention) -> tuple[Attention, Attention]:
    """The kernel over a rank's own keys, and that over another's.

    Causal ones of the latter have all queries and half of the keys where the other rank comes before, half of the
    queries and all keys where it comes after. The first is the slower one, and the last rank has nothing else; as each
    waits for keys of the one before, its pace is that of all.
    """
    tokens = make.shape.queries
    seen = tokens // 2 if kernel.causal else tokens
    return replace(kernel, keys=tokens), replace(kernel, keys=seen, causal=False)


def _forward(make: LocalLayer, kernel: Attention, part: Part) -> Iterator[Step]:
    own, other = _pieces(make, kernel)
    nbytes = float(make.shape.element * make.shape.tokens * widths(make).keys_and_values)
    sent = Exchange("keys and values", "cp", "shift", nbytes, part)
    last = make.shape.cp - 1
    yield from (Under(sent, (own if step == 0 else other,)) for step in range(last))
    yield other


def _merge(make: LocalLayer) -> Iterator[MemoryBound]:
    """The parts of the result, each scaled by its share of the softmax's sum and added in single precision."""
    element, numbers = make.shape.element, float(make.shape.tokens * widths(make).output)
    sums = 2.0 * SINGLE * make.shape.tokens * make.heads
    yield MemoryBound("first part", "elementwise", (element + SINGLE) * numbers + sums)
    for _ in range(make.shape.cp - 1):
        yield MemoryBound("merge", "elementwise", (element + 2 * SINGLE) * numbers + sums)
    yield MemoryBound("result", "cast", (SINGLE + element) * numbers)


def _backward(make: LocalLayer, kernel: Attention, part: Part) -> Iterator[Step]:
    """Others' keys first, its own last: gradients of keys and values come home with the last step."""
    own, other = _pieces(make, kernel)
    width, element, tokens = widths(make), make.shape.element, make.shape.tokens
    nbytes, last = float(element * tokens * width.keys_and_values), make.shape.cp - 1
    for step in range(last + 1):
        both = 0 < step < last
        name = "keys, values and gradients" if both else "gradients of keys and values" if step else "keys and values"
        add = MemoryBound("dQ", "elementwise", (3.0 if step else 2.0) * element * tokens * width.queries)
        sent = Exchange(name, "cp", "shift", 2 * nbytes if both else nbytes, part)
        yield Under(sent, (own if step == last else other, add))
        share = 1.0 if step == last or not kernel.causal else 0.5
        yield MemoryBound("dK and dV", "elementwise", (3.0 if step else 2.0) * share * nbytes)


context_parallelisms.register("ring", "p2p")(ContextParallelism(attention=ring, refuses=needs_plain_attention))
