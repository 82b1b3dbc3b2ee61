"""How numbers of 8 bits and fewer are made for a product: what casts read and write (``fp8_recipes.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from trainsim.documents.catalogue import shipped

RECIPES_OF = {"fp8": ("delayed", "tensorwise", "blockwise"), "mxfp8": ("mxfp8",), "nvfp4": ("nvfp4",)}
"""The recipes of a precision, of which it has one; others have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CastRecipe:
    """Bytes per element of a tensor in 16 bits that is cast; ``products`` names the speed of the products, if it is not
    the precision's."""

    maximum: float
    read: float
    written: float
    copies: int
    kind: str
    products: str | None = None

    def moved(self, *, transposed: bool) -> float:
        """Bytes per element; *transposed*: the GPU needs a copy along each dimension.

        >>> recipes()["tensorwise"].moved(transposed=True), recipes()["tensorwise"].moved(transposed=False)
        (6.0, 5.0)
        """
        copies = max(self.copies, 2 if transposed else 1)
        return float(self.maximum + self.read + copies * self.written)

    @property
    def kernels(self) -> int:
        """Kernels of a cast.

        >>> [recipes()[name].kernels for name in ("delayed", "tensorwise")]
        [1, 2]
        """
        return 2 if self.maximum else 1


@lru_cache(maxsize=1)
def recipes() -> Mapping[str, CastRecipe]:
    """All recipes by name.

    >>> sorted(recipes())
    ['blockwise', 'delayed', 'mxfp8', 'nvfp4', 'tensorwise']
    """
    return {name: CastRecipe(**row) for name, row in shipped("models", "fp8_recipes").data["recipes"].items()}
