"""A sweep of one axis: bars, or a line where there are many numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainsim.figures import DPI
from trainsim.figures import figure as new_figure
from trainsim.report.style import CRITICAL
from trainsim.study.pictures.cells import HeatCell, cell, reasons
from trainsim.study.pictures.lettering import LINE, write_notes, write_title
from trainsim.study.pictures.quantities import Quantity
from trainsim.study.pictures.ticks import Ticks, ticks
from trainsim.study.sweep_summary import Summary
from trainsim.study.swept import SweptPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILL, INK = "#6aa3d5", "#1f4e79"
TALL, HEAD, FOOT, LEFT, RIGHT = 2.9, 0.72, 0.62, 0.8, 0.3
"""Inches: the bars, the title, the names below them, and the margins."""
MANY = 12
"""Numbers from which on they are a line."""


def bars(axis: str, points: Sequence[SweptPoint], summary: Summary, shown: Quantity) -> Figure:
    """The picture: a bar for each value, hatched where it does not fit."""
    numbers = [p.values.get(axis) for p in points]
    if len(set(map(str, numbers))) > MANY and all(
        isinstance(n, int | float) and not isinstance(n, bool) for n in numbers
    ):
        return _line(axis, points, summary, shown)
    places = ticks(axis, points)
    groups = [[p for p in points if places.at(p) == k] for k in range(len(places))]
    found = [cell(group, shown, summary) or HeatCell() for group in groups]
    width = max(6.4, LEFT + RIGHT + len(places) * max(0.62, 0.085 * max(map(len, places.titles))))
    notes = reasons(summary, [one.reason for one in found], width)
    figure, axes = _axes(width, notes, shown, "framed the best that fits; hatched: does not fit in memory")
    _bars(axes, places, found, shown)
    return figure


def _axes(width: float, notes: Sequence[str], shown: Quantity, how: str) -> tuple[Figure, Axes]:
    height = HEAD + TALL + FOOT + LINE * len(notes)
    figure = new_figure(figsize=(width, height), dpi=DPI, facecolor="white")
    bottom = FOOT + LINE * len(notes)
    axes = figure.add_axes((LEFT / width, bottom / height, 1 - (LEFT + RIGHT) / width, TALL / height))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e2e2e2", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5)
    less = "less" if shown.less_is_better else "more"
    write_title(figure, shown.title, f"{less} is better, {how}")
    write_notes(figure, notes)
    return figure, axes


def _bars(axes: Axes, places: Ticks, found: Sequence[HeatCell], shown: Quantity) -> None:
    fitting = [one.value for one in found if one.value is not None and one.fits]
    best = (min if shown.less_is_better else max)(fitting, default=None)
    for k, one in enumerate(found):
        if one.value is None:
            axes.text(k, 0.0, f"({one.reason})", ha="center", va="bottom", fontsize=8.5, color="#8a8a8a")
            continue
        framed = one.value == best and one.fits
        axes.bar(
            k, one.value, width=0.68, color=FILL if one.fits else "white", hatch=None if one.fits else "////",
            edgecolor=CRITICAL if framed else FILL, linewidth=1.6 if framed else 0.8,
        )  # fmt: skip
        axes.annotate(
            shown.text(one.value), (k, one.value), (0, 3), textcoords="offset points", ha="center", va="bottom",
            fontsize=9, color="#222222",
        )  # fmt: skip
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.set_xticks(range(len(places)), places.titles)
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.1)
    axes.set_xlabel(places.axis, fontsize=9.5, parse_math=False)
    axes.yaxis.set_major_formatter(lambda value, _: shown.text(value) if value else "0")


def _line(axis: str, points: Sequence[SweptPoint], summary: Summary, shown: Quantity) -> Figure:
    """The same for many numbers: filled markers fit, hollow ones do not, crosses cannot run."""
    from matplotlib.ticker import MaxNLocator

    width = 7.5
    ran = sorted((float(p.values[axis]), shown.of(p.ran), p.fits) for p in points if p.ran)
    failed = [float(p.values[axis]) for p in points if p.ran is None]
    notes = reasons(summary, range(1, 1 + len(summary.not_run)), width)
    figure, axes = _axes(width, notes, shown, "filled: fits in memory, hollow: does not, cross: cannot run")
    axes.plot([x for x, _, _ in ran], [y for _, y, _ in ran], color=FILL, linewidth=1.2, zorder=2)
    for fits in (True, False):
        some = [(x, y) for x, y, f in ran if f is fits]
        axes.scatter(
            [x for x, _ in some], [y for _, y in some], s=24, color=INK if fits else "white", edgecolor=INK, zorder=3
        )
    low, high = axes.get_ylim()
    if failed:
        axes.scatter(failed, [low] * len(failed), marker="x", s=22, color="#8a8a8a", zorder=3, clip_on=False)
        axes.set_ylim(low, high)
    numbers = [x for x, _, _ in ran] + failed
    if min(numbers) > 0 and max(numbers) / min(numbers) >= 30:
        axes.set_xscale("log")
    elif all(float(x).is_integer() for x in numbers):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(axis, fontsize=9.5, parse_math=False)
    axes.yaxis.set_major_formatter(lambda value, _: shown.text(value) if value else "0")
    return figure
