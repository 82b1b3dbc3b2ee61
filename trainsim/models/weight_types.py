"""
How frozen weights are stored: a file in ``weights/`` per type, with the bits of a number and of the scales beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trainsim.documents.building import build, keys_of
from trainsim.documents.catalogue import COMMON, Catalogue, folder_in
from trainsim.documents.part import DocumentPart


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightType:
    """``bits`` of a number; ``scale_bits`` for each ``block`` of numbers, ``group_bits`` for each ``group`` of such
    scales, ``row_bits`` for each row of a matrix.

    What is ``quantised`` is so in the linear layers of transformer layers only (adapters lie on them), and is made into
    numbers of the passes for each use.
    """

    name: str
    source: str
    bits: float
    quantised: bool = False
    block: int = 1
    scale_bits: float = 0.0
    group: int = 1
    group_bits: float = 0.0
    row_bits: float = 0.0

    @property
    def bits_per_parameter(self) -> float:
        """Bits of a number with its part of the scales, those of rows aside.

        >>> round(weight_type("nf4").bits_per_parameter, 3)
        4.127
        """
        return self.bits + self.scale_bits / self.block + self.group_bits / (self.block * self.group)

    def nbytes(self, rows: float, columns: float) -> float:
        """Bytes of a matrix.

        >>> weight_type("int8").nbytes(4096, 1024), weight_type("fp32").nbytes(10, 10)
        (4210688.0, 400.0)
        """
        return (self.bits_per_parameter * rows * columns + self.row_bits * rows) / 8


WEIGHT_TYPES = Catalogue(
    kind="type of frozen weights", plural="types", folders=folder_in("models", "weights"), key="weights", depth=0
)


@lru_cache(maxsize=16)
def weight_type(name: str) -> WeightType:
    """The type that ships with the package under *name*. Raises UnknownName."""
    document = WEIGHT_TYPES.find(name)
    section = DocumentPart.open(document, (), document.data, dict.fromkeys([*keys_of(WeightType), *COMMON]))
    return build(WeightType, section, name=document.name, source=section.text("source", ""))
