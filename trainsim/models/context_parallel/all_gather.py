"""
All keys and values on every rank, as Llama 3 was trained (Grattafiori et al. 2024, arXiv 2407.21783, section 3.3.2).

They are gathered before attention begins, which is little where many queries share a key, and a rank's queries look at
them in one go. Under a causal mask rank i has chunks i and 2 cp - 1 - i of the sequence. Backward gathers again and
adds up the gradients of keys and values where they belong (NVIDIA/TransformerEngine, AttnFuncWithCPAndKVAllGather).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainsim.models.context_parallel import ContextParallelism, Core, context_parallelisms
from trainsim.models.context_parallel.numbers import kernels, needs_plain_attention, widths
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Attention, Exchange, Operation, Step


def all_gather(make: LocalLayer, core: Core) -> tuple[Operation, ...]:
    """Fused attention of a rank's queries over all keys, between a gather and, backward, a reduce-scatter."""
    (fused,) = core(make)
    forward, backward = kernels(fused)
    whole = float(make.shape.cp * make.shape.element * make.shape.tokens * widths(make).keys_and_values)
    copies = 2 if forward.causal else 1  # as it came, and in order
    return (
        replace(
            fused,
            forward=(*_gathered(make, forward), *_chunks(make, forward)),
            input_gradient=(*_gathered(make, backward), *_chunks(make, backward), *_scattered(make, backward)),
            transient_forward=fused.transient_forward + copies * whole,
            transient=fused.transient + (copies + 1) * whole,  # and their gradients
        ),
    )


def _exchanges(make: LocalLayer, operation: str, prefix: str = "") -> Iterator[Exchange]:
    whole = float(make.shape.cp * make.shape.element * make.shape.tokens)
    for name, width in (("keys", widths(make).keys), ("values", widths(make).values)):
        yield Exchange(f"{prefix}{name}", "cp", operation, whole * width)


def _gathered(make: LocalLayer, kernel: Attention) -> Iterator[Step]:
    """All keys and values, in the order of the sequence."""
    yield from _exchanges(make, "all_gather")
    yield from _in_order(make, kernel)


def _scattered(make: LocalLayer, kernel: Attention) -> Iterator[Step]:
    """Each rank the sum of the gradients of its own."""
    yield from _in_order(make, kernel)
    yield from _exchanges(make, "reduce_scatter", "gradients of ")


def _in_order(make: LocalLayer, kernel: Attention) -> Iterator[Step]:
    """A copy of all keys and values: those of a rank are two chunks that are not neighbours, if the mask is causal."""
    if kernel.causal:
        numbers = make.shape.cp * make.shape.tokens * widths(make).keys_and_values
        yield make.moves("chunks in order", "elementwise", 4.0 * numbers)


def _chunks(make: LocalLayer, kernel: Attention) -> Iterator[Step]:
    """The kernels over two chunks: all of what comes before each, and the causal part of its own.

    The two of the last rank are in the middle of the sequence. All ranks have the same work, and shorter rectangles are
    slower than longer ones: the last rank's pace is that of all.
    """
    if not kernel.causal:
        yield kernel
        return
    chunk = make.shape.queries // 2
    for before in (make.shape.cp - 1, make.shape.cp):
        yield replace(kernel, queries=chunk, keys=before * chunk, causal=False)
        yield replace(kernel, queries=chunk, keys=chunk)


context_parallelisms.register("all_gather")(ContextParallelism(attention=all_gather, refuses=needs_plain_attention))
