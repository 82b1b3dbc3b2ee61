"""The Gantt chart of one pipeline."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.sections import CARD, section
from trainsim.tables.blocks import Picture, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


@section("gantt chart", place=20, shown_by=(CARD,), needs=StepAnalysis)
def gantt_chart(result: StepAnalysis) -> Section:
    """The step as it ran."""
    return drawn(chart_of(result))


def chart_of(result: StepAnalysis) -> bytes:
    """The Gantt chart as PNG."""
    from trainsim.report.gantt import gantt

    return png_of(gantt(result, None, steps=result.steps))


def drawn(png: bytes) -> Section:
    """The section of a chart that has been drawn already."""
    return Section("The step", (gantt_picture(png),), "one pipeline; every kernel is in trace.json.gz")


def gantt_picture(png: bytes) -> Picture:
    """A chart that has been drawn already."""
    return Picture.of(png, "Gantt chart")


def png_of(figure: MatplotlibFigure) -> bytes:
    """A figure as PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()
