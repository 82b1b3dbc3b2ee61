"""What any step gives, simulated or measured: its numbers, pictures and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.errors import InvalidPlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class StepResult(StepAnalysis):
    """The numbers of a step with what needs nothing but its trace: pictures, a table of spans, files, a card."""

    def ranks(self, ranks: Sequence[int] | None = None) -> tuple[int, ...]:
        """*ranks* checked against those that there are; None: one pipeline."""
        if ranks is None:
            return self.pipeline
        wrong = [r for r in ranks if not 0 <= r < self.lanes.ranks]
        if wrong:
            raise InvalidPlan(f"rank {wrong[0]} does not exist: this job has ranks 0 to {self.lanes.ranks - 1}")
        return tuple(int(r) for r in ranks)

    def gantt(
        self,
        ranks: Sequence[int] | None = None,
        window: tuple[float, float] | str | None = None,
        steps: int | None = None,
    ) -> Figure:
        """A matplotlib figure with a lane per rank and stream: of all steps, or of the first *steps*. *window* zooms
        in: seconds, or words: ``F4`` (a pass, on the rank that runs it), ``F4/12`` (a layer of it), ``1.2s-1.3s``.
        Without *ranks*, one pipeline: each stage, or of more than 16 a few and a strip of all."""
        from trainsim.report.gantt import gantt
        from trainsim.report.named_windows import named_window

        if isinstance(window, str):
            part = named_window(self, window)
            ranks, window = part.ranks if ranks is None else ranks, (part.start, part.end)
        if steps is not None and not 1 <= steps <= self.steps:
            raise InvalidPlan(
                f"steps={steps}: {self.steps} {'was' if self.steps == 1 else 'were'} simulated; "
                f"simulation.steps: {max(steps, 1)} simulates more"
            )
        return gantt(self, None if ranks is None else self.ranks(ranks), window=window, steps=steps or self.steps)

    def timeline(self, ranks: Sequence[int] | None = None) -> DataFrame:
        """Every span: rank, stream, name, kind, microbatch, layer, start, end (seconds)."""
        from trainsim.report.timeline import timeline

        return timeline(self.trace, self.ranks(ranks))

    def to_chrome(self, path: str | Path, ranks: Sequence[int] | None = None) -> Path:
        """Write one trace that Perfetto and chrome://tracing load, in the words of the PyTorch profiler; gzipped if the
        name ends in ``.gz``. Without *ranks*: a pipeline, of a large one an excerpt (``trainsim.report.chrome.excerpt``
        says which)."""
        from trainsim.report.chrome import write_chrome

        return write_chrome(self, None if ranks is None else self.ranks(ranks), Path(path))

    def to_html(self, path: str | Path) -> Path:
        """Write a page that needs nothing else: tables, Gantt chart and, where it is known, memory."""
        from trainsim.report.html import page

        path = Path(path)
        path.write_text(page(self), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        from trainsim.report.html import card

        return card(self)
