"""Where the time of a step goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.kinds import WAITING, titles
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.sections import CARD, PAGE, TERMINAL, section
from trainsim.report.style import PARTS
from trainsim.tables.blocks import Section, Stacked
from trainsim.tables.cells import Bar, Cell, Part, Sign, Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator


WORTH = 5e-4
"""Part of the step from which on a wait is worth a line."""


@section("exposed time", place=10, shown_by=(TERMINAL, PAGE, CARD), needs=StepAnalysis)
def exposed_time(result: StepAnalysis) -> Section:
    """Exposed time of the mean rank: a row per part, and which part of it is waiting."""
    step = result.step_time or 1.0
    table = Table(
        columns=(
            Column(),
            Column("", Unit.TIME, like=step),
            Column("", Unit.SHARE),
            Column(),
            Column(wraps=True),
        ),
        rows=tuple(_rows(result, step)),
    )
    whole = Bar(tuple(Part(value / step, PARTS[part]) for part, value in result.breakdown.items() if value > 0))
    return Section(
        "Where the time goes", (Stacked(whole), table), "exposed time, averaged over ranks; adds up to the step"
    )


def _rows(result: StepAnalysis, step: float) -> Iterator[tuple[Cell, ...]]:
    words = titles(result.lanes.stages)
    for part, value in result.breakdown.items():
        if value > 0:
            yield part, value, value / step, Bar.of(value / step, PARTS[part]), Sign(words[part])
        if part in WAITING and (late := result.waiting[part]) > WORTH * step:
            yield "", late, late / step, None, Sign(f"of which {WAITING[part]}")
