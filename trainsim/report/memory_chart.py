"""Memory over time: a panel of stacked areas per pipeline stage, with its passes below and its peak marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainsim.analysis.memory import StageMemory
from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure
from trainsim.report.drawn_ranks import DrawnRank, drawn_ranks
from trainsim.report.levels import STACK, Edge, Stairs, drawn, edges, stairs
from trainsim.report.memory_words import peak_words, top_of, verdicts
from trainsim.report.panel import LEFT, RIGHT, WIDTH, add_axes, legend_row, time_axis
from trainsim.report.strip import painted, strip
from trainsim.report.style import CRITICAL, GIB, KEPT, LOOKS, MEMORY
from trainsim.report.windows import Panel, checked
from trainsim.units import format_bytes, format_number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, PathPatch

    from trainsim.result.result import Result

COLUMNS, FEW = 1400, 4
"""Moments per panel, about the pixels that it is wide; half of them where there are more than a few panels."""
HEAD, TITLE, FOOT = 0.4, 0.32, 0.85
"""Inches: the title, what stands above each panel, the time axis and the legend."""
PASSES, GAP = 0.11, 0.03
"""Inches: the strip of passes under each panel, and the space above it."""
TALLEST, TALL, LOW = 13.0, 2.6, 0.72
"""Inches: all panels together; the highest and the lowest panel."""


class Scale(NamedTuple):
    """What all panels have in common: ``top`` is the highest level (bytes), ``height`` that of a panel (inches),
    ``columns`` the number of moments, ``reserved`` what others keep above the capacity (bytes)."""

    window: Panel
    top: float
    capacity: float
    height: float
    columns: int
    reserved: float = 0.0

    @property
    def shows_capacity(self) -> bool:
        """Whether the line is inside the picture."""
        return self.capacity <= self.top


def memory_chart(result: Result, window: tuple[float, float] | None = None) -> Figure:
    """What the fullest rank of each stage holds, in all steps or in *window* (seconds), as a matplotlib figure.

    Raises InvalidPlan for a window that is empty or outside the step.
    """
    use = result.memory
    stages = drawn(use)
    part = _window(result, window)
    height = float(np.clip(TALLEST / len(stages) - TITLE - PASSES - GAP, LOW, TALL))
    scale = Scale(part, top_of(use), use.capacity, height, COLUMNS if len(stages) <= FEW else COLUMNS // 2)
    scale = scale._replace(reserved=use.reserved)
    total = HEAD + len(stages) * (TITLE + height + GAP + PASSES) + FOOT
    figure = new_figure(figsize=(WIDTH, total), dpi=DPI, facecolor="white")
    bottom, kinds = total - HEAD, set[str]()
    for stage, who in zip(stages, drawn_ranks(result, [fullest.rank for fullest in stages]), strict=True):
        bottom -= TITLE + height
        axes = add_axes(figure, bottom, height, total)
        _panel(axes, result, stage, scale)
        bottom -= GAP + PASSES
        _passes(add_axes(figure, bottom, PASSES, total), who, part, last=stage is stages[-1])
        kinds |= painted([who])
    _title(figure, result, total, hidden=len(use.per_stage) - len(stages))
    _legend(figure, stages, kinds, scale, total)
    return figure


def _window(result: Result, window: tuple[float, float] | None) -> Panel:
    if window is None:
        return Panel("", 0.0, result.duration or 1.0)
    return Panel("", *checked(window, result.duration))


def _panel(axes: Axes, result: Result, stage: StageMemory, scale: Scale) -> None:
    part = scale.window
    held = stairs(stage, (part.start, part.end), scale.columns)
    _areas(axes, held)
    axes.set_xlim(part.start, part.end)
    axes.set_ylim(0.0, scale.top / GIB)
    _capacity(axes, held, scale)
    for end in result.step_ends[:-1]:
        axes.axvline(end, color="#111111", linewidth=0.8, linestyle=(0, (4, 3)), zorder=6)
    if part.start <= stage.peak_at_s <= part.end:
        axes.plot(
            [stage.peak_at_s], [stage.peak / GIB], marker="v", markersize=6.5, color="#111111",
            markeredgecolor="white", markeredgewidth=0.8, clip_on=False, zorder=9,
        )  # fmt: skip
    _sides(axes, scale)
    axes.set_title(
        f"stage {stage.stage}, rank {stage.rank}", loc="left", fontsize=9, fontweight="bold", color="#222222", pad=3
    )
    over = stage.needed > scale.capacity
    axes.set_title(peak_words(result, stage), loc="right", fontsize=8.5, color=CRITICAL if over else "#222222", pad=3)


def _areas(axes: Axes, held: Stairs) -> None:
    """Categories upon each other, the upper ones first, each painted over by those below it."""
    for k, edge in enumerate(edges(held)):
        axes.add_artist(_area(edge, held.end, 0.0, facecolor=MEMORY[edge.category], zorder=2 + 0.01 * k))


def _area(edge: Edge, end: float, base: float, **look: Any) -> PathPatch:
    """The area between an edge and a level (GiB), as one path: small in an SVG."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    times = np.append(edge.times, end).repeat(2)[1:-1]
    level = np.maximum((edge.level / GIB).repeat(2), base)
    ends = np.array([[end, base], [times[0], base]])
    return PathPatch(Path(np.concatenate([np.column_stack([times, level]), ends]), closed=False), linewidth=0, **look)


def _capacity(axes: Axes, held: Stairs, scale: Scale) -> None:
    """The line at which the memory is full, and what does not fit hatched."""
    full, top = scale.capacity / GIB, held.top / GIB
    if not scale.shows_capacity:
        return
    axes.axhline(full, color=CRITICAL, linewidth=1.2, zorder=7)
    if scale.reserved:
        axes.axhspan(full, full + scale.reserved / GIB, facecolor=KEPT, edgecolor="none", zorder=1)
    if (top > full).any():
        edge = next(edges(held))
        look = {"facecolor": "none", "edgecolor": CRITICAL, "hatch": "////", "zorder": 4}
        axes.add_artist(_area(edge, held.end, full, **look))


def _sides(axes: Axes, scale: Scale) -> None:
    """GiB at the left; no times, which stand under the last strip."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(max(2, int(scale.height / 0.4)), steps=[1, 2, 2.5, 4, 5, 10]))
    axes.set_ylabel("GiB", fontsize=8, color="#444444", labelpad=2)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", bottom=False, labelbottom=False)


def _passes(axes: Axes, stage: DrawnRank, part: Panel, *, last: bool) -> None:
    """Forward, backward and optimizer, as in the Gantt chart."""
    image, extent = strip([stage], part.end, start=part.start), (part.start, part.end, 1.0, 0.0)
    axes.imshow(image, extent=extent, aspect="auto", interpolation="antialiased", zorder=2)
    axes.set_xlim(part.start, part.end)
    axes.set_yticks([])
    time_axis(axes, part)
    axes.grid(visible=False)
    if not last:
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", bottom=False, labelbottom=False)
        axes.set_xlabel("")


def _title(figure: Figure, result: Result, total: float, *, hidden: int) -> None:
    use = result.memory
    left = f"   (without {format_number_of(hidden, 'stage')} in the middle)" if hidden else ""
    text = min(verdicts(use), key=lambda words: words.startswith("fits"))
    y = 1 - 0.2 / total
    name = legible(result.name)
    figure.text(
        LEFT / WIDTH, y, name.text + left + (f"   ({name.note})" if name.note else ""), fontsize=13, fontweight="bold",
        color="#111111", va="center", parse_math=False, family=name.family,
    )  # fmt: skip
    figure.text(
        1 - RIGHT / WIDTH, y, text, fontsize=10, color="#222222" if use.fits else CRITICAL, ha="right", va="center"
    )


def _legend(figure: Figure, stages: Sequence[StageMemory], kinds: set[str], scale: Scale, total: float) -> None:
    """Categories in the order of the stack, the lines; under them what the strips show."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen = [category for category in STACK if any(category in stage.levels for stage in stages)]
    first: list[Patch | Line2D] = [Patch(facecolor=MEMORY[c], label=c) for c in seen]
    first.append(Line2D([], [], color="#111111", marker="v", linewidth=0, label="peak"))
    name = f"capacity, {format_bytes(scale.capacity)}" + ("" if scale.shows_capacity else " (above the picture)")
    first.append(Line2D([], [], color=CRITICAL, linewidth=1.2, label=name))
    if scale.reserved:
        first.append(Patch(facecolor=KEPT, label=f"kept by others, {format_bytes(scale.reserved)}"))
    order = [kind for kind in LOOKS if kind in kinds]
    second = [
        Patch(facecolor=LOOKS[kind].fill, edgecolor="#999999", linewidth=0.4, label=LOOKS[kind].title) for kind in order
    ]
    for words, handles, y in (("memory", first, 0.24), ("passes", second, 0.03)):
        figure.text(0.12 / WIDTH, (y + 0.1) / total, words, fontsize=8.5, color="#777777", va="center")
        legend_row(figure, handles, y / total)
