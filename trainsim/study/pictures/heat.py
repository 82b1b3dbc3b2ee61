"""A sweep of two axes or more: heat maps of the two that matter most, a panel for each value of the third."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

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

MOST_PANELS, PER_ROW = 9, 3
FAR = 2.5
"""Times the distance of the median from the best value at which colours end, so that a few far ones hide nothing."""
COLOURS, NOTHING, GREY = "YlGnBu", "#efefef", "#8a8a8a"
CELL, ROW, LETTER = 0.78, 0.44, 0.09
"""Inches: a cell, and a letter of the name of an axis."""
Place = tuple[float, float, float, float]
"""Left, bottom, width and height, as parts of the figure."""
LEFT, RIGHT, BETWEEN, HEAD, TITLE, FOOT, NARROWEST = 0.65, 0.3, 0.3, 0.72, 0.34, 0.72, 6.4
"""Inches: the margins, between panels, the title, that of a panel, the names below it, and the figure at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The cells of a panel by (row, column)."""

    title: str
    cells: dict[tuple[int, int], HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatLook:
    """How a number is coloured: from ``best`` to ``worst``, and not beyond. ``framed`` is the best that fits."""

    shown: Quantity
    best: float
    worst: float
    framed: float | None = None

    def colour(self, value: float) -> Any:
        from matplotlib import colormaps

        return colormaps[COLOURS](0.08 + 0.82 * self.share(value))

    def share(self, value: float) -> float:
        """1 at the best value, 0 at the worst, and beyond it."""
        span = self.best - self.worst
        return min(1.0, max(0.0, (value - self.worst) / span)) if span else 1.0


def heat_map(axes: Sequence[str], points: Sequence[SweptPoint], summary: Summary, shown: Quantity) -> Figure:
    """The picture; *axes* are at least two, what matters most first. Where there are more than three, a cell shows the
    best of the values of the others."""
    columns, rows = ticks(axes[0], points), ticks(axes[1], points)
    third = ticks(axes[2], points) if len(axes) > 2 else None
    third = third if third and len(third) <= MOST_PANELS else None
    panels = [("", list(points))] if third is None else _panels(third, points)
    grids = [Grid(title=title, cells=_cells(columns, rows, some, shown, summary)) for title, some in panels]
    every = [one for grid in grids for one in grid.cells.values()]
    look, sizes = _look(shown, every), _sizes(len(grids), columns, rows)
    notes = reasons(summary, [one.reason for one in every], sizes.width)
    figure, places = _layout(len(grids), sizes, len(notes), titled=third is not None)
    for k, (grid, place) in enumerate(zip(grids, places, strict=True)):
        axis = figure.add_axes(place)
        _panel(axis, grid, columns, rows, look)
        last = k + sizes.many >= len(grids)
        _names(axis, columns, rows, left=k % sizes.many == 0, below=last)
    _down(figure, rows.axis, places)
    _words(figure, shown, notes, others=axes[2 if third is None else 3 :])
    return figure


def _panels(third: Ticks, points: Sequence[SweptPoint]) -> list[tuple[str, list[SweptPoint]]]:
    """(Title, points) of each panel: one for each value of the third axis."""
    name = third.axis.rpartition(".")[2]
    return [(f"{name} {title}", [p for p in points if third.at(p) == k]) for k, title in enumerate(third.titles)]


def _cells(
    columns: Ticks, rows: Ticks, points: Sequence[SweptPoint], shown: Quantity, summary: Summary
) -> dict[tuple[int, int], HeatCell]:
    groups: dict[tuple[int, int], list[SweptPoint]] = {}
    for point in points:
        groups.setdefault((rows.at(point), columns.at(point)), []).append(point)
    found = {place: cell(group, shown, summary) for place, group in groups.items()}
    return {place: one for place, one in found.items() if one is not None}


def _look(shown: Quantity, cells: Sequence[HeatCell]) -> HeatLook:
    values = [one.value for one in cells if one.value is not None] or [1.0]
    fitting = [one.value for one in cells if one.value is not None and one.fits]
    best, worst = (min, max) if shown.less_is_better else (max, min)
    end = best(values) + FAR * (median(values) - best(values))
    far = best(worst(values), end) if end != best(values) else worst(values)
    return HeatLook(shown=shown, best=best(values), worst=far, framed=best(fitting, default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Panels in a row; in inches the figure's ``width``, its ``left`` margin, and a panel."""

    many: int
    width: float
    left: float
    across: float
    tall: float


def _sizes(panels: int, columns: Ticks, rows: Ticks) -> Sizes:
    across = max(CELL, 0.085 * max(map(len, columns.titles))) * len(columns)
    left = LEFT + 0.07 * max(map(len, rows.titles))
    many = 2 if panels == 4 else min(panels, PER_ROW)
    width = max(left + many * across + (many - 1) * BETWEEN + RIGHT, NARROWEST)
    return Sizes(many=many, width=width, left=left, across=across, tall=ROW * len(rows))


def _layout(panels: int, sizes: Sizes, notes: int, *, titled: bool) -> tuple[Figure, list[Place]]:
    """The figure, and the place of each panel in it."""
    down, title = -(-panels // sizes.many), TITLE if titled else 0.08
    width, height = sizes.width, HEAD + down * (title + sizes.tall) + FOOT + LINE * notes
    figure = new_figure(figsize=(width, height), dpi=DPI, facecolor="white")
    places = []
    for k in range(panels):
        x = sizes.left + (k % sizes.many) * (sizes.across + BETWEEN)
        y = height - HEAD - (k // sizes.many + 1) * (title + sizes.tall)
        places.append((x / width, y / height, sizes.across / width, sizes.tall / height))
    return figure, places


def _panel(axis: Axes, grid: Grid, columns: Ticks, rows: Ticks, look: HeatLook) -> None:
    axis.set_xlim(0, len(columns))
    axis.set_ylim(len(rows), 0)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if grid.title:
        axis.set_title(grid.title, loc="left", fontsize=9.5, color="#222222", parse_math=False)
    for (y, x), one in grid.cells.items():
        _draw(axis, x, y, one, look)


def _draw(axis: Axes, x: int, y: int, one: HeatCell, look: HeatLook) -> None:
    """A cell: its number, hatched where it does not fit; grey with the number of the reason where nothing ran."""
    from matplotlib.patches import Rectangle

    box: dict[str, Any] = {"linewidth": 1.5, "edgecolor": "white"}
    if one.value is None:
        axis.add_patch(Rectangle((x, y), 1, 1, facecolor=NOTHING, **box))
        axis.text(x + 0.5, y + 0.5, f"({one.reason})", ha="center", va="center", fontsize=8, color=GREY)
        return
    colour = look.colour(one.value)
    text = look.shown.text(one.value)
    axis.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, **box))
    if not one.fits:
        lines = "white" if look.share(one.value) > 0.35 else "#a8a890"
        axis.add_patch(Rectangle((x, y), 1, 1, facecolor="none", edgecolor=lines, hatch="////", linewidth=0))
        wide = 0.2 + 0.1 * len(text)
        axis.add_patch(Rectangle((x + 0.5 - wide / 2, y + 0.24), wide, 0.52, facecolor=colour, linewidth=0))
    best = one.value == look.framed and one.fits
    axis.text(
        x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=9, fontweight="bold" if best else "normal",
        color="white" if look.share(one.value) > 0.55 else "#1a1a1a",
    )  # fmt: skip
    if best:
        axis.add_patch(
            Rectangle((x + 0.03, y + 0.05), 0.94, 0.9, facecolor="none", edgecolor=CRITICAL, linewidth=1.6, zorder=3)
        )


def _names(axis: Axes, columns: Ticks, rows: Ticks, *, left: bool, below: bool) -> None:
    axis.set_xticks([k + 0.5 for k in range(len(columns))], columns.titles if below else [], fontsize=8.5)
    axis.set_yticks([k + 0.5 for k in range(len(rows))], rows.titles if left else [], fontsize=8.5)
    if below:
        axis.set_xlabel(columns.axis, fontsize=9.5, parse_math=False)


def _down(figure: Figure, axis: str, places: Sequence[Place]) -> None:
    """The name of the rows, once for all panels; its last word where there is no room for more."""
    bottom, top = places[-1][1], places[0][1] + places[0][3]
    fits = len(axis) * LETTER <= (top - bottom) * figure.get_figheight()
    name = axis if fits else axis.rpartition(".")[2]
    figure.text(
        0.24 / figure.get_figwidth(), (bottom + top) / 2, name, fontsize=9.5, rotation=90, ha="center", va="center",
        parse_math=False,
    )  # fmt: skip


def _words(figure: Figure, shown: Quantity, notes: Sequence[str], *, others: Sequence[str]) -> None:
    """The title, how to read the cells, and the reasons; a cell shows the best over the values of *others*."""
    names = [axis.rpartition(".")[2] for axis in others[:3]] + [f"{len(others) - 3} more"] * (len(others) > 3)
    title = f"{shown.title}{', best over ' * bool(names)}{', '.join(names)}"
    how = "dark is good, framed the best that fits; hatched: does not fit in memory"
    write_title(figure, title, how)
    write_notes(figure, notes)
