"""Gantt charts of several runs above each other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure
from trainsim.report.canvas import Scene
from trainsim.report.drawn_ranks import DrawnRank, drawn_ranks
from trainsim.report.gantt import draw_strip
from trainsim.report.panel import WIDTH, add_axes, how_to_read, legend, panel, time_axis
from trainsim.report.scene import scene
from trainsim.report.strip import painted
from trainsim.report.windows import Panel, checked, chosen
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.analysis.step_analysis import StepAnalysis

HEAD, BETWEEN, FOOT = 0.3, 0.62, 0.55
TALLEST = 12.0
"""Inches: above the first chart, under each, the legend; and about what all charts take."""
MOST = 130
"""Passes of a rank that are drawn one by one."""


def stacked(
    results: Sequence[StepAnalysis],
    names: Sequence[str],
    *,
    window: tuple[float, float] | None = None,
    ranks: Sequence[Sequence[int]] | None = None,
) -> Figure:
    """One pipeline of each run, or *ranks* of each, from 0 to the end of the longest or in *window* (seconds); a dashed
    line is its end.

    Long steps are drawn as strips of pixels unless a window zooms in. Raises InvalidPlan for an empty window.
    """
    longest = max(result.duration for result in results)
    part = Panel("", *checked(window or (0.0, longest), longest, "the longest run"))
    who = [chosen(result) for result in results] if ranks is None else ranks
    every = [drawn_ranks(result, some) for result, some in zip(results, who, strict=True)]
    long = not window and any(len(stage.passes.work) > MOST for stages in every for stage in stages)
    scenes = [] if long else _scenes(results, every, part)
    tall = [float(len(stages)) for stages in every] if long else [drawn.height for drawn in scenes]
    scale = float(np.clip(TALLEST / sum(tall), 0.12, 0.25 if long else 0.4))
    total = HEAD + sum(h * scale + BETWEEN for h in tall) + FOOT
    figure, top = new_figure(figsize=(WIDTH, total), dpi=DPI, facecolor="white"), total - HEAD
    notes: dict[str, None] = {}
    for k, result in enumerate(results):
        axes = add_axes(figure, top - tall[k] * scale, tall[k] * scale, total)
        if long:
            draw_strip(axes, every[k], result.duration)
            axes.set_xlim(part.start, part.end)
            time_axis(axes, part)
            axes.grid(visible=False)
        else:
            panel(axes, scenes[k], part, scale, path=result.critical_path)
        notes[_end(axes, result, names[k])] = None
        top -= tall[k] * scale + BETWEEN
    kinds = {kind for drawn in scenes for kind in drawn.looks} | {kind for s in every if long for kind in painted(s)}
    note = "; ".join(filter(None, ("" if long else how_to_read(kinds, max(map(len, every))), *notes)))
    legend(figure, kinds, total, note=note, path=not long)
    return figure


def _scenes(results: Sequence[StepAnalysis], every: Sequence[Sequence[DrawnRank]], part: Panel) -> list[Scene]:
    """What each run shows of a window, passes as boxes."""
    window = part.start, part.end
    both = zip(results, every, strict=True)
    return [scene(result, stages, window, detailed=False) for result, stages in both]


def _end(axes: Axes, result: StepAnalysis, name: str) -> str:
    """The end of the run, and its name above the chart; what has to be said of its letters."""
    words = legible(name)
    bubble = result.bubble
    rates = "".join(f", {name.upper()} {value:.1%}" for name, value in result.rates.items())
    text = f"step {format_time(result.step_time)}, bubble {bubble.fraction:.1%}{rates}"
    axes.axvline(result.duration, color="#111111", linewidth=0.9, linestyle=(0, (4, 3)), zorder=8)
    axes.set_title(
        words.text, loc="left", parse_math=False, fontsize=10, fontweight="bold", color="#222222", pad=4,
        family=words.family,
    )  # fmt: skip
    axes.set_title(text, loc="right", fontsize=9, color="#222222", pad=4)
    return words.note
