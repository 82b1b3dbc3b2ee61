"""What a run gives: an analysis that can be looked at, written to files, and compared with another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.analysis.analysis import Analysis
from trainsim.errors import InvalidPlan
from trainsim.report.serial import link_rows, result_dict
from trainsim.result.comparison import Comparison, comparable, compare

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Result(Analysis):
    """The analysis of a simulated step, or of several back to back, with its pictures, files and comparisons.

    Numbers are those of ``Analysis``: times in seconds, memory in bytes, speeds in FLOP/s.
    """

    def ranks(self, ranks: Sequence[int] | None = None) -> tuple[int, ...]:
        """*ranks* checked against the cluster; None: one pipeline."""
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

    def timeline(self, ranks: Sequence[int] | None = None) -> DataFrame:
        """Every span: rank, stream, name, kind, microbatch, layer, start, end (seconds)."""
        from trainsim.report.timeline import timeline

        return timeline(self.trace, self.ranks(ranks))

    def to_chrome(self, path: str | Path, ranks: Sequence[int] | None = None) -> Path:
        """Write a trace that Perfetto and chrome://tracing load; gzipped if the name ends in ``.gz``. Without *ranks*:
        a pipeline, of a large one an excerpt (``trainsim.report.chrome.excerpt`` says which)."""
        from trainsim.report.chrome import write_chrome

        return write_chrome(self, None if ranks is None else self.ranks(ranks), Path(path))

    def to_html(self, path: str | Path) -> Path:
        """Write a page that needs nothing else: tables, Gantt chart, memory."""
        from trainsim.report.html import page

        path = Path(path)
        path.write_text(page(self), encoding="utf-8")
        return path

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

    def _repr_html_(self) -> str:
        from trainsim.report.html import card

        return card(self)
