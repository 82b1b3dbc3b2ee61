"""
Attention without a fused kernel, as the kernels that PyTorch runs one after the other (``standard_attention.yaml``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trainsim.costs.gemm import BYTES
from trainsim.documents.catalogue import shipped
from trainsim.models.operations import Attention, Gemm, MemoryBound, Work

STANDARD = "eager"
"""What a scenario calls it."""
VARIANT = "torch"


@cache
def _operators(direction: str) -> Mapping[str, Any]:
    data: Mapping[str, Any] = shipped("costs", "standard_attention").data[direction]
    return data


def standard_attention(work: Attention) -> Iterator[Work]:
    """The products and memory-bound kernels of a pass of *work*, in 16 bits.

    >>> whole = Attention("a", "eager", 1, 16, 16, 4096, 4096, 128)
    >>> [part.name for part in standard_attention(whole)]
    ['product', 'product', 'mask', 'softmax', 'copies of queries and keys and values']
    """
    operators, batch = _operators(work.direction), work.batch * work.heads
    sizes = {"q": work.queries, "k": work.keys, "d": (work.head_dim + work.values) // 2}
    for rows, columns, depth in operators["products"]:
        yield Gemm("product", sizes[rows], sizes[columns], sizes[depth], batch)
    scores = float(batch) * work.queries * work.keys
    for row in operators["scores"]:
        if work.causal or not row.get("causal"):
            yield _moved(row, scores)
    for row in operators["heads"]:
        yield _moved(row, float(batch) * (work.queries + work.keys) / 2 * sizes["d"])


def _moved(row: Mapping[str, Any], elements: float) -> MemoryBound:
    return MemoryBound(row["operator"], row["kind"], row["passes"] * BYTES["bf16"] * elements, variant=VARIANT)
