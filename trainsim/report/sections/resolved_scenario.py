"""The scenario that was run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Section, Verbatim

if TYPE_CHECKING:
    from trainsim.result.result import Result


@section("scenario", place=100, shown_by=(PAGE,))
def resolved_scenario(result: Result) -> Section:
    """Every field of the scenario, as YAML."""
    return Section("Scenario", (Verbatim(_yaml(result)),), "resolved")


def _yaml(result: Result) -> str:
    import yaml

    try:
        return yaml.safe_dump(dict(result.scenario), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        return repr(dict(result.scenario))
