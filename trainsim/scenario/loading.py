"""Scenario files: found by name, by path, or on top of another scenario (``base``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Catalogue, folder_beside
from trainsim.documents.document import Document
from trainsim.errors import ScenarioError

SCENARIOS = Catalogue(
    kind="scenario",
    plural="scenarios",
    key="scenarios",
    folders=folder_beside("scenarios"),
    error=ScenarioError,
    needs="a scenario needs at least `model:` and `cluster:`",
)


def scenario_names() -> tuple[str, ...]:
    """The scenarios that ship with the package."""
    return SCENARIOS.names()


def read_scenario(scenario: str | Path | Mapping[str, Any]) -> Document:
    """What a scenario's file or mapping says, and where each of its values stands.

    Raises UnknownName or ScenarioError, with the line, for what is not one YAML mapping with distinct keys.
    """
    return SCENARIOS.find(scenario)
