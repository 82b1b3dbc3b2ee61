"""What a run gives: an analysis that can be looked at, written to files, and compared with another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.analysis.analysis import Analysis
from trainsim.errors import InvalidPlan
from trainsim.report.serial import link_rows, result_dict
from trainsim.result.comparison import Comparison, comparable, compare
from trainsim.result.step_result import StepResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Result(StepResult, Analysis):
    """The analysis of a simulated step, or of several back to back, with charts, files and comparisons.

    Numbers are those of ``Analysis``: times in seconds, memory in bytes, speeds in FLOP/s.
    """

    def memory_chart(self, window: tuple[float, float] | None = None) -> Figure:
        """A matplotlib figure of what the fullest rank of each stage holds over time; *window* in seconds zooms in."""
        from trainsim.report.memory_chart import memory_chart

        return memory_chart(self, window=window)

    def link_chart(self, n: int | None = None, window: tuple[float, float] | None = None) -> Figure:
        """A matplotlib figure of how full the busiest links are over time and whose bytes they are: of each kind of
        link one, of the *n* fullest kinds (None: six); *window* in seconds zooms in."""
        from trainsim.report.link_chart import MOST_LINKS, link_chart

        if n is not None and n < 1:
            raise InvalidPlan(f"n={n}: a picture of links shows 1 kind of link or more; leave n out for {MOST_LINKS}")
        return link_chart(self, most=n or MOST_LINKS, window=window)

    def links(self) -> DataFrame:
        """The busiest link of each kind, one direction of it, the fullest first: kind, name, how many of the links of
        this kind have equal traffic, mean and peak use (parts of what transfers reach), seconds above 90 %, bytes in a
        step, and the part of the mean that each kind of communication has."""
        from pandas import DataFrame

        rows = ((row, row.pop("by_kind")) for row in link_rows(self))
        return DataFrame([{**row, **by_kind} for row, by_kind in rows])

    def to_kineto(self, directory: str | Path, ranks: Sequence[int] | None = None) -> tuple[Path, ...]:
        """Write traces as the PyTorch profiler does, a file per rank (``rank-0.json.gz``, ...), for tools that read
        those, such as HolisticTraceAnalysis. Without *ranks*: those of a pipeline, of a large one a few of its stages.
        Raises InvalidPlan for more than a few million kernels."""
        from trainsim.report.kineto import write_kineto

        return write_kineto(self, None if ranks is None else self.ranks(ranks), Path(directory))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data with stable keys: what ``result.json`` holds."""
        return result_dict(self)

    def save(self, directory: str | Path) -> tuple[Path, ...]:
        """Write result.json, gantt.png, trace.json.gz and report.html into *directory*."""
        from trainsim.report.files import save

        return save(self, Path(directory))

    def __sub__(self, other: Result) -> Comparison:
        """How much this run differs from *other*, and from where."""
        return compare(comparable(other), comparable(self))

    def __repr__(self) -> str:
        return (
            f"<Result {self.name}: step {self.step_time:.4g} s, MFU {self.mfu:.1%}, "
            f"bubble {self.bubble.fraction:.1%}, memory {self.memory.peak / 2**30:.1f} GiB>"
        )
