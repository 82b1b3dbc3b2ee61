"""Speed against memory: every point that ran, those that no other beats, and where the memory is full."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure
from trainsim.report.style import CRITICAL, GIB
from trainsim.study.pictures.lettering import write_notes, write_title
from trainsim.study.pictures.ticks import Ticks, ticks
from trainsim.study.sweep_summary import Summary
from trainsim.study.swept import SweptPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

PALETTE = ("#2f5f95", "#e66a3c", "#4f9a5b", "#a988d6", "#d9b310", "#6aa3d5", "#7a2468", "#8c8c8c")
SIZE = (8.4, 5.2)
BEYOND = 1.45
"""How many times the capacity the picture reaches, however much more some points take."""
CORNERS = ((7, 5, "left", "bottom"), (-7, 5, "right", "bottom"), (7, -5, "left", "top"), (-7, -5, "right", "top"),
           (0, 8, "center", "bottom"), (0, -8, "center", "top"))  # fmt: skip
"""Points of type from a marker to its label, and which corner of the label is there."""


def pareto(axes: Sequence[str], points: Sequence[SweptPoint], summary: Summary) -> Figure:
    """The picture; *axes* have what matters most first, whose values are colours. Points far out of memory are only
    counted."""
    ran = [point for point in points if point.ran]
    capacity = max((point.ran.capacity for point in ran if point.ran), default=1.0)
    most = max(map(_memory, ran), default=0.0)
    end = max([1.06 * capacity, min(BEYOND * capacity, 1.05 * most), *(1.05 * _memory(p) for p in summary.front)])
    shown = [point for point in ran if _memory(point) <= end]
    figure = new_figure(figsize=SIZE, dpi=DPI, facecolor="white")
    plot = figure.add_axes((0.085, 0.16, 0.735, 0.705))
    colours = ticks(axes[0], points) if axes else None
    _frame(plot, shown, sorted({p.ran.capacity for p in ran if p.ran}), end)
    _markers(plot, shown, colours)
    _front(plot, summary.front)
    _legend(plot, colours, {} if colours is None else {colours.at(point) for point in shown})
    hidden, over = len(ran) - len(shown), any(p.ran and p.fits and p.ran.peak_memory > p.ran.capacity for p in shown)
    how = "up and to the left is better; line: what no other point beats in both; hollow: does not fit"
    write_title(figure, "speed against memory", how)
    notes = [f"{hidden} more take more memory than is drawn"] * (hidden > 0)
    write_notes(figure, notes + ["filled and right of the line: slack of the allocator is given back"] * over)
    _labels(plot, summary.front, shown)
    return figure


def _memory(point: SweptPoint) -> float:
    return point.ran.peak_memory if point.ran else 0.0


def _speed(point: SweptPoint) -> float:
    return point.ran.tokens_per_s_per_gpu if point.ran else 0.0


def _frame(plot: Axes, shown: Sequence[SweptPoint], capacities: Sequence[float], end: float) -> None:
    """The axes, and a line where the memory of a GPU is full."""
    speeds = [_speed(point) for point in shown] or [0.0, 1.0]
    room = 0.08 * (max(speeds) - min(speeds) or max(speeds) or 1.0)
    least = min([_memory(point) for point in shown], default=0.0)
    plot.set_xlim(max(0.0, (least - 0.06 * end) / GIB), end / GIB)
    plot.set_ylim(max(0.0, min(speeds) - room), max(speeds) + 1.6 * room)
    plot.spines[["top", "right"]].set_visible(False)
    plot.grid(color="#e8e8e8", linewidth=0.6)
    plot.set_axisbelow(True)
    plot.tick_params(labelsize=8.5)
    plot.set_xlabel("peak memory of the fullest GPU (GiB)", fontsize=9.5)
    plot.set_ylabel("tokens/s per GPU", fontsize=9.5)
    plot.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 10 else f"{value:g}")
    for full in capacities:
        plot.axvline(full / GIB, color=CRITICAL, linewidth=1.2, zorder=1)
        plot.text(
            full / GIB, 1.0, f" {full / GIB:.0f} GiB", fontsize=8, color=CRITICAL, va="top", ha="left",
            transform=plot.get_xaxis_transform(),
        )  # fmt: skip
    if capacities:
        plot.axvspan(capacities[-1] / GIB, end / GIB, color=CRITICAL, alpha=0.045, linewidth=0, zorder=0)


def _markers(plot: Axes, shown: Sequence[SweptPoint], colours: Ticks | None) -> None:
    for point in shown:
        colour = _colour(colours, point)
        plot.plot(
            [_memory(point) / GIB], [_speed(point)], marker="o", markersize=6, linestyle="", zorder=3,
            color=colour if point.fits else "white", markeredgecolor=colour, markeredgewidth=1.2,
            alpha=1.0 if point.fits else 0.75,
        )  # fmt: skip


def _colour(colours: Ticks | None, point: SweptPoint) -> str:
    return PALETTE[0] if colours is None else PALETTE[colours.at(point) % len(PALETTE)]


def _front(plot: Axes, front: Sequence[SweptPoint]) -> None:
    """What no other beats, least memory first, as a line."""
    ordered = sorted(front, key=_memory)
    plot.plot(
        [_memory(p) / GIB for p in ordered], [_speed(p) for p in ordered], color="#333333", linewidth=1.3, zorder=2,
        drawstyle="steps-post",
    )  # fmt: skip


def _legend(plot: Axes, colours: Ticks | None, used: Collection[int]) -> None:
    from matplotlib.lines import Line2D

    if colours is None or len(colours) < 2:
        return
    keys = [
        Line2D([], [], marker="o", linestyle="", color=PALETTE[k % len(PALETTE)], label=title)
        for k, title in enumerate(colours.titles)
        if k in used
    ]
    plot.legend(
        handles=keys, title=legible(colours.axis.rpartition(".")[2]).text, fontsize=8.5, title_fontsize=9,
        frameon=False, loc="upper left", alignment="left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0,
    )  # fmt: skip


def _labels(plot: Axes, front: Sequence[SweptPoint], shown: Sequence[SweptPoint]) -> None:
    """Titles of the points of the front: the fastest first, and only those that lie on nothing."""
    figure: Any = plot.figure
    figure.canvas.draw()
    taken = [_around(plot, point) for point in shown] + _lines(plot, front)
    for point in sorted(front, key=lambda p: -_speed(p)):
        for across, up, left, below in CORNERS:
            text = plot.annotate(
                legible(point.title).text, (_memory(point) / GIB, _speed(point)), (across, up), fontsize=7.8,
                textcoords="offset points", ha=left, va=below, color="#222222", parse_math=False, zorder=4,
            )  # fmt: skip
            box = text.get_window_extent()
            if _free(plot, box, taken):
                taken.append(box)
                break
            text.remove()


def _around(plot: Axes, point: SweptPoint) -> Bbox:
    """The pixels of a marker."""
    from matplotlib.transforms import Bbox

    x, y = plot.transData.transform((_memory(point) / GIB, _speed(point)))
    return Bbox.from_extents(x - 4, y - 4, x + 4, y + 4)


def _lines(plot: Axes, front: Sequence[SweptPoint]) -> list[Bbox]:
    """The pixels of the line that joins the front, and of those where the memory is full."""
    from matplotlib.transforms import Bbox

    at = [plot.transData.transform((_memory(p) / GIB, _speed(p))) for p in sorted(front, key=_memory)]
    boxes = []
    for (x, y), (next_x, next_y) in pairwise(at):
        boxes += [Bbox.from_extents(x, y - 1, next_x, y + 1), Bbox.from_extents(next_x - 1, y, next_x + 1, next_y)]
    inside = plot.get_window_extent()
    for full in {p.ran.capacity for p in front if p.ran}:
        x = plot.transData.transform((full / GIB, 0.0))[0]
        boxes.append(Bbox.from_extents(x - 1, inside.y0, x + 1, inside.y1))
    return boxes


def _free(plot: Axes, box: Bbox, taken: Sequence[Bbox]) -> bool:
    inside = plot.get_window_extent()
    fits = box.x0 >= inside.x0 + 2 and box.x1 <= inside.x1 - 2 and box.y0 >= inside.y0 and box.y1 <= inside.y1
    return bool(fits) and not any(box.overlaps(other) for other in taken)
