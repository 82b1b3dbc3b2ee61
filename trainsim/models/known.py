"""
The models and the families that ship with the package: data files in ``catalog/`` and ``families/``.
"""

from __future__ import annotations

from typing import Any

from trainsim.documents.catalogue import COMMON, Catalogue, folder_in
from trainsim.errors import ScenarioError

MODELS = Catalogue(
    kind="model", plural="models", folders=folder_in("models", "catalog"), key="models", depth=0, error=ScenarioError
)
FAMILIES = Catalogue(
    kind="model family", plural="model families", folders=folder_in("models", "families"), key="families"
)


def model_names() -> tuple[str, ...]:
    """All models of the catalogue."""
    return MODELS.names()


def family_names() -> tuple[str, ...]:
    """All families, whose defaults fill in what a mapping leaves out."""
    return FAMILIES.names()


def family_data(family: str) -> dict[str, Any]:
    """What a family's file says. Raises UnknownName.

    >>> family_data("llama")["norm"]
    'rmsnorm'
    """
    return {key: value for key, value in FAMILIES.find(family).data.items() if key not in COMMON}
