"""What to know before believing the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.report.sections import CARD, PAGE, TERMINAL, section
from trainsim.tables.blocks import Bullets, Section

if TYPE_CHECKING:
    from trainsim.result.result import Result


@section("warnings", place=90, shown_by=(TERMINAL, PAGE, CARD))
def notices(result: Result) -> Section | None:
    """The warnings of a run."""
    return Section("Warnings", (Bullets(result.warnings, "doubtful"),)) if result.warnings else None
