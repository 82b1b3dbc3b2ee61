"""Memory over the step, as charts of a page."""

from __future__ import annotations

from trainsim.analysis.analysis import Analysis
from trainsim.report.memory_page import memory_charts
from trainsim.report.page.areas import memory_data
from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Interactive, Markup, Section


@section("memory over time", place=35, shown_by=(PAGE,), needs=Analysis)
def memory_over_time(result: Analysis) -> Section:
    """A chart of what the fullest rank of each stage holds."""
    still = Markup(memory_charts(result))
    note = "fullest rank of each stage, by what the memory is for"
    return Section("Memory over time", (Interactive("areas", memory_data(result), (still,)),), note)
