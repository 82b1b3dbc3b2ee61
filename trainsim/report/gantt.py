"""The Gantt chart: one lane per stage and stream; long steps by warm-up, a steady window and cool-down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.errors import InvalidPlan
from trainsim.figures import figure as new_figure
from trainsim.report.panel import LEFT, RIGHT, WIDTH, add_axes, how_to_read, legend, panel, time_axis
from trainsim.report.scene import Scene, Stage, actors, scene
from trainsim.report.strip import strip
from trainsim.report.windows import Window, detailed, windows
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.result.result import Result


class Layout(NamedTuple):
    """Inches per unit of height of a panel, and the height that each panel needs."""

    scale: float
    panels: tuple[float, ...]
    strip: float

    @property
    def height(self) -> float:
        return HEAD + sum(p + BETWEEN for p in self.panels) + (self.strip + BETWEEN if self.strip else 0.0) + FOOT


HEAD, BETWEEN, FOOT = 0.62, 0.62, 0.55
"""Inches: title, space under each panel for its axis, legend."""
ALONE = 1.0
"""Inches per lane height where there is one rank to show."""


def gantt(result: Result, ranks: Sequence[int], *, steps: int, window: tuple[float, float] | None = None) -> Figure:
    """The first *steps*, or *window* (seconds), of some ranks as a matplotlib figure; nothing is written to disk.

    Raises InvalidPlan for a window that is empty or outside the step.
    """
    stages = actors(result, ranks)
    parts = _windows(result, stages, window, steps)
    scenes = [scene(result, stages, (w.start, w.end), detailed=detailed(result, stages, w.start, w.end)) for w in parts]
    layout = _layout(scenes, len(stages))
    figure = new_figure(figsize=(WIDTH, layout.height), dpi=110, facecolor="white")
    top = layout.height - HEAD
    if layout.strip:
        axes = add_axes(figure, top - layout.strip, layout.strip, layout.height)
        _overview(axes, result, stages, parts)
        top -= layout.strip + BETWEEN
    path = False
    for one, part, height in zip(scenes, parts, layout.panels, strict=True):
        axes = add_axes(figure, top - height, height, layout.height)
        path |= panel(axes, result, one, part, layout.scale)
        top -= height + BETWEEN
    _title(figure, result, layout)
    kinds = {kind for one in scenes for kind in one.boxes}
    note = "" if all(one.detailed for one in scenes) else how_to_read(kinds, len(result.bubble.per_stage))
    legend(figure, kinds, layout.height, note=note, path=path)
    return figure


def _windows(
    result: Result, stages: Sequence[Stage], window: tuple[float, float] | None, steps: int
) -> tuple[Window, ...]:
    if window is None:
        bubble, ends = result.bubble, result.step_ends[:steps]
        until = result.duration if steps == result.steps else ends[-1]
        return windows(stages, until, bubble.warmup_s, bubble.cooldown_s, ends=ends)
    start, end = max(0.0, float(window[0])), min(result.duration, float(window[1]))
    if not start < end:
        raise InvalidPlan(f"window {tuple(window)} shows nothing: the step is from 0 to {result.duration:.6g} s")
    return (Window(f"{format_time(start)} to {format_time(end)}", start, end),)


def _layout(scenes: Sequence[Scene], stages: int) -> Layout:
    tallest = max(one.height for one in scenes)
    most = ALONE if stages == 1 else 0.62
    scale = float(np.clip(6.0 / tallest, 0.13, most)) if len(scenes) == 1 else float(np.clip(4.4 / tallest, 0.14, 0.5))
    strip = 0.0 if len(scenes) == 1 else float(np.clip(stages * 0.07, 0.3, 1.2))
    return Layout(scale, tuple(max(0.5, one.height * scale) for one in scenes), strip)


def _overview(axes: Axes, result: Result, stages: Sequence[Stage], parts: Sequence[Window]) -> None:
    """The whole step as a strip of pixels, with frames around the windows below."""
    from matplotlib.patches import Rectangle

    step = result.duration
    image = strip(stages, step)
    axes.imshow(image, extent=(0.0, step, len(stages), 0.0), aspect="auto", interpolation="antialiased", zorder=2)
    for part in parts:
        axes.add_patch(
            Rectangle(
                (part.start, 0),
                part.end - part.start,
                len(stages),
                fill=False,
                edgecolor="#111111",
                linewidth=1.2,
                zorder=5,
                clip_on=False,
            )
        )
    axes.set_yticks([0.5, len(stages) - 0.5], [f"stage {stages[0].number}", f"stage {stages[-1].number}"])
    axes.tick_params(axis="y", length=0)
    axes.set_title(
        f"{f'all {result.steps} steps' if result.steps > 1 else 'the whole step'}; frames are the panels below",
        loc="left",
        fontsize=9,
        color="#444444",
        pad=3,
    )
    time_axis(axes, Window("", 0.0, step))
    axes.grid(visible=False)


def _title(figure: Figure, result: Result, layout: Layout) -> None:
    bubble = result.bubble
    period = f", period {format_time(result.period)}" if result.period is not None else ""
    step, mfu = f"step {format_time(result.step_time)}{period}", f"MFU {result.mfu:.1%}"
    parts = {"warm-up": bubble.warmup_s, "steady": bubble.steady_s, "cool-down": bubble.cooldown_s}
    phases = ", ".join(f"{name} {format_time(value)}" for name, value in parts.items())
    pipeline = len(bubble.per_stage) > 1
    text = "    ".join([step, f"bubble {bubble.fraction:.1%}", mfu, phases] if pipeline else [step, mfu])
    y = 1 - 0.2 / layout.height
    figure.text(
        LEFT / WIDTH, y, result.name, fontsize=13, fontweight="bold", color="#111111", va="center", parse_math=False
    )
    figure.text(1 - RIGHT / WIDTH, y, text, fontsize=10, color="#222222", ha="right", va="center")
