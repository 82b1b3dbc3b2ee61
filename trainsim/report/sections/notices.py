"""What to know before trusting the numbers."""

from __future__ import annotations

from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.sections import CARD, PAGE, TERMINAL, section
from trainsim.tables.blocks import Bullets, Section


@section("warnings", place=90, shown_by=(TERMINAL, PAGE, CARD), needs=StepAnalysis)
def notices(result: StepAnalysis) -> Section | None:
    """The warnings of a run."""
    return Section("Warnings", (Bullets(result.warnings, "doubtful"),)) if result.warnings else None
