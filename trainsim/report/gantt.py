"""The Gantt chart: one lane per stage and stream; long steps by warm-up, a steady window and cool-down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure
from trainsim.report.canvas import Scene
from trainsim.report.drawn_ranks import DrawnRank, drawn_ranks
from trainsim.report.panel import LEFT, RIGHT, TURNS, WIDTH, add_axes, how_to_read, legend, panel, time_axis
from trainsim.report.scene import scene
from trainsim.report.strip import strip
from trainsim.report.windows import Panel, checked, chosen, detailed, windows
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.analysis.step_analysis import StepAnalysis


class ChartLayout(NamedTuple):
    """Inches per unit of height of a panel, and the height that each panel needs."""

    scale: float
    panels: tuple[float, ...]
    strip: float

    @property
    def height(self) -> float:
        return HEAD + sum(p + BETWEEN for p in self.panels) + (self.strip + BETWEEN if self.strip else 0.0) + FOOT


HEAD, BETWEEN, FOOT = 0.62, 0.62, 0.55
"""Inches: title, space under each panel for its axis, legend."""
ALONE, KERNELS_ALONE = 1.0, 1.5
"""Inches per lane height where there is one rank to show, and where its kernels are."""


def gantt(
    result: StepAnalysis, ranks: Sequence[int] | None, *, steps: int, window: tuple[float, float] | None = None
) -> Figure:
    """The first *steps*, or *window* (seconds), of some ranks as a matplotlib figure; nothing is written to disk. None:
    one pipeline, of which a few stages if it has many.

    Raises InvalidPlan for a window that is empty or outside the step.
    """
    stages = drawn_ranks(result, chosen(result) if ranks is None else ranks)
    some = ranks is None and len(stages) < len(result.pipeline)
    known = {actor.rank: actor for actor in stages}
    everyone = tuple(known.get(actor.rank, actor) for actor in drawn_ranks(result, result.pipeline)) if some else stages
    parts = _windows(result, stages, window, steps)
    scenes = [scene(result, stages, (w.start, w.end), detailed=detailed(result, stages, w.start, w.end)) for w in parts]
    layout = _layout(scenes, everyone, some=some)
    figure = new_figure(figsize=(WIDTH, layout.height), dpi=DPI, facecolor="white")
    top = layout.height - HEAD
    if layout.strip:
        _overview(add_axes(figure, top - layout.strip, layout.strip, layout.height), result, everyone, parts, stages)
        top -= layout.strip + BETWEEN
    path = False
    for drawn, part, height in zip(scenes, parts, layout.panels, strict=True):
        axes = add_axes(figure, top - height, height, layout.height)
        path |= panel(axes, drawn, part, layout.scale, path=result.critical_path)
        top -= height + BETWEEN
    words = _title(figure, result, layout)
    looks = {look for drawn in scenes for look in drawn.looks}
    reading = TURNS if any(drawn.turns for drawn in scenes) else ""
    if not all(drawn.detailed for drawn in scenes):
        reading = how_to_read(looks, len(result.bubble.per_stage))
    legend(figure, looks, layout.height, note="; ".join(filter(None, (reading, words))), path=path)
    return figure


def _windows(
    result: StepAnalysis, stages: Sequence[DrawnRank], window: tuple[float, float] | None, steps: int
) -> tuple[Panel, ...]:
    if window is None:
        bubble, ends = result.bubble, result.step_ends[:steps]
        until = result.duration if steps == result.steps else ends[-1]
        return windows(stages, until, bubble.warmup_s, bubble.cooldown_s, ends=ends)
    start, end = checked(window, result.duration)
    times = [format_time(start), format_time(end)]
    title = " to ".join(times) if times[0] != times[1] else f"{start * 1e3:.3f} to {end * 1e3:.3f} ms"
    return (Panel(title, start, end),)


def _layout(scenes: Sequence[Scene], everyone: Sequence[DrawnRank], *, some: bool) -> ChartLayout:
    """*some*: not everyone is in the panels, so that the strip is needed, and may be taller."""
    tallest = max(drawn.height for drawn in scenes)
    most = (KERNELS_ALONE if scenes[0].detailed else ALONE) if len(everyone) == 1 else 0.62
    scale = float(np.clip(6.0 / tallest, 0.13, most)) if len(scenes) == 1 else float(np.clip(4.4 / tallest, 0.14, 0.5))
    strip = float(np.clip(len(everyone) * 0.07, 0.3, 2.4 if some else 1.2)) if some or len(scenes) > 1 else 0.0
    return ChartLayout(scale, tuple(max(0.5, drawn.height * scale) for drawn in scenes), strip)


def _overview(
    axes: Axes, result: StepAnalysis, everyone: Sequence[DrawnRank], parts: Sequence[Panel], drawn: Sequence[DrawnRank]
) -> None:
    """The whole step of all stages as a strip of pixels, with frames around the windows below."""
    from matplotlib.patches import Rectangle

    draw_strip(axes, everyone, result.duration)
    for part in parts:
        axes.add_patch(
            Rectangle(
                (part.start, 0), part.end - part.start, len(everyone), fill=False, edgecolor="#111111", linewidth=1.2,
                zorder=5, clip_on=False,
            )
        )  # fmt: skip
    words = f"all {result.steps} steps" if result.steps > 1 else "the whole step"
    if len(drawn) < len(everyone):
        names = ", ".join(str(actor.stage) for actor in drawn)
        words += f" of all {len(everyone)} stages; below are {names}: the ends, the middle and the busiest of the rest"
    words += "; frames are the panels below"
    axes.set_title(words, loc="left", fontsize=9, color="#444444", pad=3)


def draw_strip(axes: Axes, stages: Sequence[DrawnRank], duration: float) -> None:
    """A row of pixels per stage."""
    image, extent = strip(stages, duration), (0.0, duration, float(len(stages)), 0.0)
    axes.imshow(image, extent=extent, aspect="auto", interpolation="antialiased", zorder=2)
    axes.set_yticks([0.5, len(stages) - 0.5], [f"stage {stages[0].stage}", f"stage {stages[-1].stage}"])
    axes.tick_params(axis="y", length=0)
    time_axis(axes, Panel("", 0.0, duration))
    axes.grid(visible=False)


def _title(figure: Figure, result: StepAnalysis, layout: ChartLayout) -> str:
    """Write the head; what has to be said of the letters."""
    bubble = result.bubble
    period = f", period {format_time(result.period)}" if result.period is not None else ""
    step = f"step {format_time(result.step_time)}{period}"
    rates = [f"{name.upper()} {value:.1%}" for name, value in result.rates.items()]
    parts = {"warm-up": bubble.warmup_s, "steady": bubble.steady_s, "cool-down": bubble.cooldown_s}
    phases = ", ".join(f"{name} {format_time(value)}" for name, value in parts.items())
    pipeline = len(bubble.per_stage) > 1
    text = "    ".join([step, f"bubble {bubble.fraction:.1%}", *rates, phases] if pipeline else [step, *rates])
    y = 1 - 0.2 / layout.height
    name = legible(result.name)
    figure.text(
        LEFT / WIDTH, y, name.text, fontsize=13, fontweight="bold", color="#111111", va="center", parse_math=False,
        family=name.family,
    )  # fmt: skip
    figure.text(1 - RIGHT / WIDTH, y, text, fontsize=10, color="#222222", ha="right", va="center")
    return name.note
