"""The step as it ran: every span of a pipeline, to zoom into."""

from __future__ import annotations

from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.chrome import excerpt
from trainsim.report.page.spans import timeline_data
from trainsim.report.sections import PAGE, section
from trainsim.report.sections.gantt_chart import chart_of, gantt_picture
from trainsim.tables.blocks import Interactive, Section

MOST_SPANS = 1_000_000
"""Spans of a page; of a larger pipeline a page shows an excerpt, chosen as that of a trace file."""


@section("timeline", place=21, shown_by=(PAGE,), needs=StepAnalysis)
def timeline(result: StepAnalysis) -> Section:
    """Every kernel, collective and message of a pipeline."""
    return with_picture(result, chart_of(result))


def with_picture(result: StepAnalysis, png: bytes) -> Section:
    """The same with the Gantt chart, as PNG, where no script runs."""
    part = excerpt(result, MOST_SPANS)
    words = f"an excerpt of one pipeline: {part.words}" if part.words else ""
    data = timeline_data(result.trace, part.ranks, part.window, path=result.critical_path, words=words)
    note = words or "one pipeline: every kernel, collective and message"
    return Section("The step", (Interactive("timeline", data, (gantt_picture(png),)),), note)
