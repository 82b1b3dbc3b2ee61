"""The summary for a terminal, read from top to bottom; it needs 80 columns and no colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainsim.report.sections import TERMINAL, report
from trainsim.tables.blocks import Paragraph, Section, Verbatim
from trainsim.tables.terminal import rich_sections

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Group

    from trainsim.analysis.step_analysis import StepAnalysis


def summary(result: StepAnalysis) -> Group:
    """Everything that a person wants to know first, as one rich renderable."""
    return rich_sections(report(result, TERMINAL))


def written(files: Iterable[Path], *, excerpt: str = "") -> Section:
    """The files that hold more; *excerpt* says which part of the step is in the trace, where that is not all of it."""
    note = f"The trace holds an excerpt: {excerpt}. --files whole-trace writes all of a pipeline."
    return Section("Files", (Verbatim("\n".join(map(str, files))), *([Paragraph(note, "quiet")] if excerpt else [])))
