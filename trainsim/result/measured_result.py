"""What the trace of a real step gives: the same numbers, pictures and files as a simulated one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.measured_analysis import MeasuredAnalysis
from trainsim.result.step_result import StepResult
from trainsim.units import format_number_of, format_time

if TYPE_CHECKING:
    from rich.console import RenderableType


class MeasuredResult(StepResult, MeasuredAnalysis):
    """A measured step with its pictures and files; what only a scenario tells (memory, MFU, links) is not there."""

    def __repr__(self) -> str:
        ranks = format_number_of(len(self.measured.rank_numbers), "rank")
        return f"<MeasuredResult {self.name}: step {format_time(self.step_time)}, {ranks}, {self.measured.part}>"

    def __rich__(self) -> RenderableType:
        from trainsim.report.text import summary

        return summary(self)
