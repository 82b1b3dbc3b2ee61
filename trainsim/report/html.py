"""The report as one page that needs nothing else, and the card that a notebook shows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from trainsim.report.sections import CARD, PAGE, report
from trainsim.report.sections.gantt_chart import drawn
from trainsim.tables import page as html

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis


def page(result: StepAnalysis, picture: bytes | None = None) -> str:
    """The whole report. *picture*: the Gantt chart as PNG, if it has been drawn already."""
    made = {"gantt chart": drawn(picture)} if picture else {}
    return html.page(report(result, PAGE, made), result.name)


def card(result: StepAnalysis) -> str:
    """What a notebook shows for a result; never raises."""
    try:
        return html.card(report(result, CARD), result.name)
    except Exception as error:  # a card that cannot be drawn must not hide the result
        return f"<pre>{escape(type(result).__name__)}: {escape(str(error))}</pre>"
