"""The report as one page that needs nothing else, and the card that a notebook shows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from trainsim.report.page.assets import script, style
from trainsim.report.sections import CARD, PAGE, report
from trainsim.report.sections.timeline import with_picture
from trainsim.tables import page as html

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis


def page(result: StepAnalysis, picture: bytes | None = None) -> str:
    """The whole report. *picture*: the Gantt chart as PNG, if it has been drawn already."""
    made = {"timeline": with_picture(result, picture)} if picture else {}
    return html.page(report(result, PAGE, made), result.name, script=script(), style=style())


def card(result: StepAnalysis) -> str:
    """What a notebook shows for a result; never raises."""
    try:
        return html.card(report(result, CARD), result.name)
    except Exception as error:  # a card that cannot be drawn must not hide the result
        return f"<pre>{escape(type(result).__name__)}: {escape(str(error))}</pre>"
