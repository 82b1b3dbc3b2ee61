"""Scenario files: found by name, by path, or on top of another scenario (``base``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Catalogue, folder_beside
from trainsim.documents.document import Document, text_of
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
    """The scenarios that ship with the package, those of one job."""
    shipped = SCENARIOS.files.items()
    return tuple(name for name, path in shipped if "\njobs:" not in text_of(path, name, ScenarioError))


def of_several_jobs(data: Mapping[str, Any]) -> bool:
    """Whether a document describes several jobs on one machine rather than the scenario of one."""
    return "jobs" in data and "model" not in data


def read_scenario(scenario: str | Path | Mapping[str, Any]) -> Document:
    """What a scenario's file or mapping says, and where each of its values stands.

    Raises UnknownName or ScenarioError, with the line, for what is not one YAML mapping with distinct keys, or
    describes several jobs.
    """
    document = SCENARIOS.find(scenario)
    if of_several_jobs(document.data):
        message = "describes several jobs on one machine, which only `trainsim run` can run; give one scenario"
        raise document.fail(("jobs",), message)
    return document
