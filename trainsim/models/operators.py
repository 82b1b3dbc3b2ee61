"""
Memory-bound operations that nothing fuses: the operators that eager PyTorch runs for each, as ``operators.yaml`` counts
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from trainsim.documents.catalogue import shipped
from trainsim.models.operations import MemoryBound

SINGLE = 4  # bytes of a number in single precision
DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator: passes over a tensor in the type of the activations and in fp32, read or written.

    ``cast``: there only where those types differ; ``weight``: there only where the norm's weight is trained; ``kind``:
    of kernel, whose rate it has.
    """

    operator: str
    low: float = 0.0
    fp32: float = 0.0
    cast: bool = False
    weight: bool = False
    kind: str = "elementwise"


@lru_cache(maxsize=1)
def operators() -> Mapping[str, Mapping[str, tuple[Operator, ...]]]:
    """The operators of every kind of operation, forward and backward.

    >>> [o.operator for o in operators()["gated"]["forward"]]
    ['activation of the gate', 'product']
    """
    data = shipped("models", "operators").data
    kinds = {kind: rows for kind, rows in data.items() if isinstance(rows, Mapping)}
    return {
        kind: {direction: tuple(Operator(**row) for row in rows[direction]) for direction in DIRECTIONS}
        for kind, rows in kinds.items()
    }


def unfused(
    name: str, kind: str, direction: str, elements: float, *, element: int, trained: bool = True
) -> MemoryBound:
    """The operators of a *kind* over *elements* numbers of *element* bytes, one after the other.

    >>> unfused("norm", "rmsnorm", "forward", 1.0, element=2)  # 4 passes in 16 bits, 7 in 32
    MemoryBound(name='norm', kind='elementwise', nbytes=36.0, kernels=8, variant='tuned')
    """
    rows = [
        row
        for row in operators()[kind][direction]
        if not (row.cast and element == SINGLE) and not (row.weight and not trained)
    ]
    nbytes = elements * sum(row.low * element + row.fp32 * SINGLE for row in rows)
    return MemoryBound(name, rows[0].kind, nbytes, len(rows))
