"""The Gantt chart of one pipeline."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from trainsim.report.sections import CARD, PAGE, section
from trainsim.tables.blocks import Picture, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

    from trainsim.result.result import Result


@section("gantt chart", place=20, shown_by=(PAGE, CARD))
def gantt_chart(result: Result) -> Section:
    """The step as it ran."""
    return drawn(png_of(result.gantt()))


def png_of(figure: MatplotlibFigure) -> bytes:
    """A figure as PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()


def drawn(png: bytes) -> Section:
    """The section of a chart that has been drawn already."""
    return Section("The step", (Picture.of(png, "Gantt chart"),), "one pipeline; every kernel is in trace.json.gz")
