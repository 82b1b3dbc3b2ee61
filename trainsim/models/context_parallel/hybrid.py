"""
All-to-alls among neighbours and a ring across them (USP: Fang and Zhao 2024, arXiv 2405.07719; Transformer Engine's
``a2a+p2p``): heads are cut within a node, where links are fast, and keys travel between nodes, under the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trainsim.models.context_parallel import Complaint, ContextParallelism, Core, context_parallelisms
from trainsim.models.context_parallel.numbers import needs_plain_attention
from trainsim.models.context_parallel.ring_attention import ring
from trainsim.models.context_parallel.ulysses import by_heads, heads_complaints
from trainsim.models.layer_kind import LayerKind
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Operation
from trainsim.models.shapes import Shape


def hybrid(make: LocalLayer, core: Core) -> tuple[Operation, ...]:
    """Heads cut among ``ulysses`` neighbours, each of which goes round a ring of those with the same heads."""
    neighbours = make.shape.ulysses
    if neighbours == 1:
        return ring(make, core)
    around = partial(ring, core=core, part=("across", neighbours)) if neighbours < make.shape.cp else core
    return by_heads(make, around, neighbours, ("within", neighbours))


def refuses(kind: LayerKind, shape: Shape, attention: str) -> Iterator[Complaint]:
    """Neighbours that do not divide the ranks of a sequence or the heads, and what a ring cannot do."""
    key = "parallel.ulysses"
    if shape.cp % shape.ulysses:
        works = ", ".join(str(n) for n in range(1, shape.cp + 1) if shape.cp % n == 0)
        yield key, f"{shape.ulysses} neighbours do not divide cp={shape.cp}; {works} would"
    yield from heads_complaints(kind, shape, shape.ulysses, key)
    yield from needs_plain_attention(kind, shape, attention)


context_parallelisms.register("hybrid", "a2a+p2p", "usp")(ContextParallelism(attention=hybrid, refuses=refuses))
