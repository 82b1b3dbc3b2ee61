"""
Attention from a decoder to the result of the encoder: queries of one sequence, keys and values of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainsim.models.attention_operations import attention
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Operation


def cross_attention(make: LocalLayer) -> Iterator[Operation]:
    """A norm, the products, the core and the addition; nothing where a layer has none.

    The encoder's result is kept once for all layers, with the norm that makes it.
    """
    kind, shape = make.kind, make.shape
    if not kind.cross_attention:
        return
    far = LocalLayer(kind, replace(shape, sequence_length=shape.memory), make.style)
    both, kept = make.heads_width - make.query_width, make.kept_width - make.query_width
    plain = replace(kind, causal=False, cross_attention=False, positions="none")
    core = attention(LocalLayer(plain, replace(shape, seen=shape.memory), make.style))
    yield make.norm("cross norm")
    queries = make.query_width
    yield make.linear("cross q", queries, kind.hidden, "column", keeps=queries * shape.element)
    yield far.linear("cross kv", both, kind.hidden, "column", keeps=kept * shape.element, shared_input=True)
    yield from (replace(o, name=f"cross {o.name}") for o in core)
    yield make.linear("cross proj", kind.hidden, make.value_width, "row")
    yield make.residual("cross add")
