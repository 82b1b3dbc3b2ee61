"""
What automatic differentiation keeps from forward to backward, kind of operation by kind of operation.

The inputs of linear layers, and the queries, keys and values of attention, are kept by all frameworks; the tables say
what their other kernels keep beside those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainsim.errors import TrainsimError


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """So many tensors in the type of the activations, so many in fp32, and so many fp32 numbers per row.

    >>> Kept(tensors=1, fp32=1, rows=1).nbytes(100.0, element=2, rows=10)
    640.0
    """

    tensors: float = 0.0
    fp32: float = 0.0
    rows: float = 0.0

    def nbytes(self, elements: float, *, element: int, rows: float = 0.0) -> float:
        """Bytes for a tensor of *elements* in *rows*, where an activation's element has *element* bytes."""
        return (self.tensors * element + 4.0 * self.fp32) * elements + 4.0 * self.rows * rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Logits:
    """Bytes per logit: kept until backward, and on top of it for a while in the forward and backward of the loss."""

    kept: float
    forward: float
    backward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One framework's table. A row is a token for norms, a head of a token for fused attention.

    ``expanded_heads``: unfused attention repeats grouped keys and values for every query head, in memory.
    """

    layernorm: Kept
    rmsnorm: Kept
    rmsnorm1p: Kept
    gelu: Kept
    gelu_tanh: Kept
    relu: Kept
    gated: Kept
    softmax: Kept
    fused_attention: Kept
    logits: Logits
    expanded_heads: bool = False

    def of(self, kind: str) -> Kept:
        """The row of the table for a kind of norm or activation."""
        found = getattr(self, kind)
        assert isinstance(found, Kept), kind
        return found


def read_saved(profile: str, table: Mapping[str, Any]) -> Saved:
    """The table of a profile's ``saved:`` mapping. Raises TrainsimError for rows that are missing or unknown."""
    rows = {f.name for f in fields(Saved)}
    wrong = (rows - {"expanded_heads"} - set(table)) | (set(table) - rows)
    if wrong:
        raise TrainsimError(f"framework {profile}: saved must have the rows {sorted(rows)}; mind {sorted(wrong)}")
    kept = {k: Kept(**v) for k, v in table.items() if k not in ("logits", "expanded_heads")}
    return Saved(**kept, logits=Logits(**table["logits"]), expanded_heads=bool(table.get("expanded_heads", False)))
