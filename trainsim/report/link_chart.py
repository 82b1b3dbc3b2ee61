"""Links over time: of each kind the busiest link, how full it is, coloured by whose bytes they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.links import NEARLY_FULL, LinkUse
from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure
from trainsim.report.drawn_ranks import DrawnRank, drawn_ranks
from trainsim.report.link_words import alike, fullness
from trainsim.report.panel import LEFT, RIGHT, WIDTH, add_axes, legend_row, time_axis
from trainsim.report.strip import painted, strip
from trainsim.report.style import CRITICAL, LOOKS, PARTS
from trainsim.report.windows import Panel, checked, chosen
from trainsim.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.analysis.lanes import Floats
    from trainsim.result.result import Result

BINS = 400
"""Windows of the time axis: each shows its mean."""
MOST_LINKS = 6
"""Kinds of links in a picture, if nobody says how many."""
WORTH_A_COLOUR = 0.01
"""Of a step: links that are nearly full for so long stand out."""
HEAD, TITLE, FOOT = 0.4, 0.32, 0.85
"""Inches: the title, what stands above each strip, the time axis and the legend."""
TALL, PASSES, STAGE = 0.8, 0.35, 0.09
"""Inches: a strip, the least height of that of the passes, and that of a stage in it."""


def link_chart(result: Result, *, most: int = MOST_LINKS, window: tuple[float, float] | None = None) -> Figure:
    """The fullest links of a run (*most* kinds), in all steps or in *window* (seconds), as a matplotlib figure.

    Raises InvalidPlan for a window that is empty or outside the step.
    """
    part = Panel("", *((0.0, result.duration or 1.0) if window is None else checked(window, result.duration)))
    rows, stages = result.link_traffic.rows[:most], drawn_ranks(result, chosen(result))
    passes = max(PASSES, STAGE * len(stages))
    total = HEAD + TITLE + passes + len(rows) * (TITLE + TALL) + FOOT
    figure = new_figure(figsize=(WIDTH, total), dpi=DPI, facecolor="white")
    bottom = total - HEAD - TITLE - passes
    _passes(add_axes(figure, bottom, passes, total), stages, part, last=not rows)
    edges = np.linspace(part.start, part.end, BINS + 1)
    for row in rows:
        bottom -= TITLE + TALL
        axes = add_axes(figure, bottom, TALL, total)
        _strip(axes, row, edges, result.link_traffic.level(row.link).mean(edges))
        _words(axes, row, result.step_time)
        _times(axes, part, last=row is rows[-1])
    _title(figure, result, total, some=bool(rows))
    seen = [kind for kind in COMMUNICATION if any(kind in row.by_kind for row in rows)]
    _legend(figure, seen, painted(stages), total)
    return figure


def _strip(axes: Axes, row: LinkUse, edges: Floats, means: Floats) -> None:
    """Kinds of communication upon each other; the line is where a link is nearly full."""
    base = np.zeros(len(edges) - 1)
    axes.axhspan(0.0, 1.0, facecolor="#f6f6f6", edgecolor="none", zorder=0)
    for kind, mean in zip(COMMUNICATION, means, strict=True):
        if kind in row.by_kind:
            axes.stairs(base + mean, edges, baseline=base, fill=True, color=PARTS[kind], linewidth=0, zorder=2)
            base = base + mean
    axes.axhline(NEARLY_FULL, color=CRITICAL, linewidth=0.7, linestyle=(0, (4, 3)), zorder=3)
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks([0.0, 0.5, 1.0], ["0", "50 %", "100 %"])
    axes.tick_params(axis="y", labelsize=7.5)


def _words(axes: Axes, row: LinkUse, step: float) -> None:
    axes.set_title(f"{row.kind}:  {alike(row)}", loc="left", fontsize=9, fontweight="bold", color="#222222", pad=3)
    full = row.nearly_full_s >= WORTH_A_COLOUR * step
    axes.set_title(fullness(row, step), loc="right", fontsize=8.5, color=CRITICAL if full else "#222222", pad=3)


def _passes(axes: Axes, stages: Sequence[DrawnRank], part: Panel, *, last: bool) -> None:
    """What the stages of a pipeline do meanwhile."""
    image, extent = strip(stages, part.end, start=part.start), (part.start, part.end, float(len(stages)), 0.0)
    axes.imshow(image, extent=extent, aspect="auto", interpolation="antialiased", zorder=2)
    ends = sorted({0, len(stages) - 1})
    axes.set_yticks([k + 0.5 for k in ends], [f"stage {stages[k].stage}" for k in ends])
    axes.tick_params(axis="y", length=0)
    axes.set_title("passes of a pipeline", loc="left", fontsize=9, fontweight="bold", color="#222222", pad=3)
    _times(axes, part, last=last)


def _times(axes: Axes, part: Panel, *, last: bool) -> None:
    """The axis that all strips share, written under the last one."""
    axes.set_xlim(part.start, part.end)
    time_axis(axes, part)
    if not last:
        axes.tick_params(axis="x", bottom=False, labelbottom=False)
        axes.set_xlabel("")


def _title(figure: Figure, result: Result, total: float, *, some: bool) -> None:
    y, name = 1 - 0.2 / total, legible(result.name)
    words = "the busiest link of each kind, one direction" if some else "nothing crosses any link"
    figure.text(
        LEFT / WIDTH, y, name.text + (f"   ({name.note})" if name.note else ""), fontsize=13, fontweight="bold",
        color="#111111", va="center", parse_math=False, family=name.family,
    )  # fmt: skip
    text = f"step {format_time(result.step_time)}    {words}"
    figure.text(1 - RIGHT / WIDTH, y, text, fontsize=10, color="#222222", ha="right", va="center")


def _legend(figure: Figure, seen: Sequence[str], looks: set[str], total: float) -> None:
    """Whose bytes they are; under that, what the passes show."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    first: list[Patch | Line2D] = [Patch(facecolor=PARTS[kind], label=LOOKS[kind].title) for kind in seen]
    first.append(
        Line2D(
            [], [], color=CRITICAL, linewidth=0.8, linestyle=(0, (4, 3)), label=f"{NEARLY_FULL:.0%} of what is reached"
        )
    )
    second = [
        Patch(facecolor=LOOKS[kind].fill, edgecolor="#999999", linewidth=0.4, label=LOOKS[kind].title)
        for kind in LOOKS
        if kind in looks
    ]
    for what, handles, y in (("links", first, 0.24), ("passes", second, 0.03)):
        figure.text(0.12 / WIDTH, (y + 0.1) / total, what, fontsize=8.5, color="#777777", va="center")
        legend_row(figure, handles, y / total)
