"""Gantt charts of several runs above each other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainsim.errors import InvalidPlan
from trainsim.figures import figure as new_figure
from trainsim.report.panel import WIDTH, add_axes, how_to_read, legend, panel, time_axis
from trainsim.report.scene import Scene, Stage, actors, scene
from trainsim.report.strip import painted, strip
from trainsim.report.windows import Window
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.result.result import Result

HEAD, BETWEEN, FOOT = 0.3, 0.62, 0.55
TALLEST = 12.0
"""Inches: above the first chart, under each, the legend; and about what all charts take."""
MOST = 130
"""Passes of a rank that are drawn one by one."""


def stacked(results: Sequence[Result], names: Sequence[str], *, window: tuple[float, float] | None = None) -> Figure:
    """One pipeline of each run, from 0 to the end of the longest or in *window* (seconds); a dashed line is its end.

    Long steps are drawn as strips of pixels unless a window zooms in. Raises InvalidPlan for an empty window.
    """
    longest = max(result.duration for result in results)
    start, end = window or (0.0, longest)
    if not 0.0 <= max(start, 0.0) < min(end, longest):
        raise InvalidPlan(f"window {window} shows nothing: the longest run is from 0 to {longest:.6g} s")
    part = Window("", max(start, 0.0), min(end, longest))
    every = [actors(result, result.ranks()) for result in results]
    long = not window and any(len(stage.slots.work) > MOST for stages in every for stage in stages)
    scenes = [] if long else [_scene(one, stages, part) for one, stages in zip(results, every, strict=True)]
    tall = [float(len(stages)) for stages in every] if long else [one.height for one in scenes]
    scale = float(np.clip(TALLEST / sum(tall), 0.12, 0.25 if long else 0.4))
    total = HEAD + sum(h * scale + BETWEEN for h in tall) + FOOT
    figure, top = new_figure(figsize=(WIDTH, total), dpi=110, facecolor="white"), total - HEAD
    for k, result in enumerate(results):
        axes = add_axes(figure, top - tall[k] * scale, tall[k] * scale, total)
        if long:
            _strip(axes, every[k], result.duration, part)
        else:
            panel(axes, result, scenes[k], part, scale)
        _end(axes, result, names[k])
        top -= tall[k] * scale + BETWEEN
    kinds = {kind for one in scenes for kind in one.boxes} | {kind for s in every if long for kind in painted(s)}
    note = "" if long else how_to_read(kinds, max(map(len, every)))
    legend(figure, kinds, total, note=note, path=not long)
    return figure


def _scene(result: Result, stages: Sequence[Stage], part: Window) -> Scene:
    return scene(result, stages, (part.start, part.end), detailed=False)


def _strip(axes: Axes, stages: Sequence[Stage], duration: float, part: Window) -> None:
    extent = (0.0, duration, float(len(stages)), 0.0)
    axes.imshow(strip(stages, duration), extent=extent, aspect="auto", interpolation="antialiased", zorder=2)
    axes.set_xlim(part.start, part.end)
    axes.set_yticks([0.5, len(stages) - 0.5], [f"stage {stages[0].number}", f"stage {stages[-1].number}"])
    axes.tick_params(axis="y", length=0)
    time_axis(axes, part)
    axes.grid(visible=False)


def _end(axes: Axes, result: Result, name: str) -> None:
    """The end of the run, and its name above the chart."""
    bubble = result.bubble
    text = f"step {format_time(result.step_time)}, bubble {bubble.fraction:.1%}, MFU {result.mfu:.1%}"
    axes.axvline(result.duration, color="#111111", linewidth=0.9, linestyle=(0, (4, 3)), zorder=8)
    axes.set_title(name, loc="left", parse_math=False, fontsize=10, fontweight="bold", color="#222222", pad=4)
    axes.set_title(text, loc="right", fontsize=9, color="#222222", pad=4)
