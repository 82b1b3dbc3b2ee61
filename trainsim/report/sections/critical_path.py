"""What sets the length of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.sections import PAGE, section
from trainsim.report.style import CRITICAL
from trainsim.tables.blocks import Section
from trainsim.tables.cells import Bar, Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainsim.analysis.critical import Cause

WORTH = 5e-4
"""Part of the path from which on a kind is worth a line."""


@section("critical path", place=70, shown_by=(PAGE,), needs=StepAnalysis)
def critical(result: StepAnalysis) -> Section:
    """The critical path by kind of work."""
    note = "the gapless chain of work and messages that sets the length of the step, by kind"
    return Section("Critical path", (critical_table(result.critical_path.causes, result.step_time),), note)


def critical_table(causes: Sequence[Cause], step: float) -> Table:
    """A row per kind of work on the path."""
    return Table(
        columns=(
            Column("kind"),
            Column("on the path", Unit.TIME, like=step),
            Column("share", Unit.SHARE),
            Column(width=20),
        ),
        rows=tuple(
            (cause.kind, cause.seconds, cause.share, Bar.of(cause.share, CRITICAL))
            for cause in causes
            if cause.share > WORTH
        ),
    )
