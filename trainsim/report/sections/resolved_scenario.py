"""The scenario that was run."""

from __future__ import annotations

from trainsim.analysis.analysis import Analysis
from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Interactive, Section, Verbatim


@section("scenario", place=100, shown_by=(PAGE,), needs=Analysis)
def resolved_scenario(result: Analysis) -> Section:
    """Every field of the scenario, as YAML."""
    return Section(
        "Scenario",
        (Interactive("folded", {"title": "the scenario as it was run"}, (Verbatim(_yaml(result)),)),),
        "resolved",
    )


def _yaml(result: Analysis) -> str:
    import yaml

    try:
        return yaml.safe_dump(dict(result.scenario), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        return repr(dict(result.scenario))
