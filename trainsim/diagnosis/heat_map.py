"""Workers by how much they slow the job down: a row per replica, a column per stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainsim.diagnosis.operations import Floats
from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.diagnosis.diagnosis import Diagnosis

CELL, MARGIN = 0.55, 1.6
"""Inches of a cell, and of what is around all cells."""
LARGEST = 14.0
LEGIBLE = 0.34
"""Inches from which on a cell has room for its number."""
MOST_NAMES = 40
LEAST_SPAN = 0.1
"""The colours span a slowdown of at least so much, so that noise looks like noise."""


def heat_map(diagnosis: Diagnosis) -> Figure:
    """The slowdown by worker as a matplotlib figure."""
    rows = sorted({(score.dp_rank, score.lane) for score in diagnosis.by_worker})
    stages = sorted({score.stage for score in diagnosis.by_worker})
    values = np.full((len(rows), len(stages)), np.nan)
    for score in diagnosis.by_worker:
        values[rows.index((score.dp_rank, score.lane)), stages.index(score.stage)] = score.slowdown
    cell = min(CELL, (LARGEST - MARGIN) / max(values.shape))
    width, height = max(cell * len(stages) * 1.5 + 2.4, 5.2), max(cell * len(rows) + MARGIN, 2.4)
    figure = new_figure(figsize=(width, height), dpi=DPI, facecolor="white")
    bottom, tall = 0.65 / height, (height - MARGIN + 0.35) / height
    axes = figure.add_axes((0.75 / width, bottom, (width - 2.05) / width, tall))
    top = max(float(np.nanmax(values)), 1.0 + LEAST_SPAN)
    image = axes.imshow(values, cmap="YlOrRd", vmin=1.0, vmax=top, aspect="auto")
    if cell >= LEGIBLE:
        _numbers(axes, values, 1.0 + 0.6 * (top - 1.0))
    twins = any(lane for _, lane in rows)
    _labels(axes, [str(s) for s in stages], [f"{rank}.{lane}" if twins else str(rank) for rank, lane in rows])
    bar = figure.colorbar(image, cax=figure.add_axes((1 - 1.05 / width, bottom, 0.16 / width, tall)))
    bar.ax.tick_params(labelsize=8)
    bar.set_label("slowdown by the worker", fontsize=8.5)
    name = legible(diagnosis.name)
    words = f"{name.text}: slowdown {diagnosis.slowdown:.2f}"
    figure.text(0.75 / width, 1 - 0.34 / height, words, fontsize=11, fontweight="bold", parse_math=False,
                family=name.family)  # fmt: skip
    return figure


def _numbers(axes: Axes, values: Floats, dark: float) -> None:
    """The numbers in the cells, white from *dark* on."""
    for (row, column), value in np.ndenumerate(values):
        if value == value:
            colour = "white" if value > dark else "#222222"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8.5, color=colour)


def _labels(axes: Axes, columns: list[str], rows: list[str]) -> None:
    """Names of columns and rows, of many some."""
    for axis, names, title in ((axes.xaxis, columns, "stage"), (axes.yaxis, rows, "DP rank")):
        ticks = range(0, len(names), -(-len(names) // MOST_NAMES))
        axis.set_ticks(list(ticks), [names[k] for k in ticks])
        axis.set_label_text(title, fontsize=9)
    axes.tick_params(length=0, labelsize=8.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
