"""Workers by how much they slow the job down: a row per replica, a column per stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainsim.diagnosis.diagnosis import Diagnosis

CELL, MARGIN = 0.55, 1.6
"""Inches of a cell, and of what is around all cells."""
LARGEST = 14.0
LEGIBLE = 0.34
"""Inches from which on a cell has room for its number."""
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
    axes = figure.add_axes((1.0 / width, 0.65 / height, (width - 2.3) / width, (height - MARGIN + 0.2) / height))
    top = max(float(np.nanmax(values)), 1.0 + LEAST_SPAN)
    image = axes.imshow(values, cmap="YlOrRd", vmin=1.0, vmax=top, aspect="auto")
    if cell >= LEGIBLE:
        for (row, column), value in np.ndenumerate(values):
            if value == value:
                dark = value > 1.0 + 0.6 * (top - 1.0)
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8.5,
                          color="white" if dark else "#222222")  # fmt: skip
    twins = any(lane for _, lane in rows)
    axes.set_xticks(range(len(stages)), [str(stage) for stage in stages])
    axes.set_yticks(range(len(rows)), [f"{rank}.{lane}" if twins else str(rank) for rank, lane in rows])
    for axis in (axes.xaxis, axes.yaxis):
        ticks = axis.get_ticklocs()
        axis.set_ticks(ticks[:: -(-len(ticks) // 40)])
    axes.set_xlabel("stage", fontsize=9)
    axes.set_ylabel("dp rank", fontsize=9)
    axes.tick_params(length=0, labelsize=8.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(
        image, cax=figure.add_axes((1 - 1.05 / width, 0.65 / height, 0.16 / width, (height - MARGIN + 0.2) / height))
    )
    bar.ax.tick_params(labelsize=8)
    bar.set_label("slowdown by the worker", fontsize=8.5)
    bar.outline.set_visible(False)
    name = legible(diagnosis.name)
    words = f"{name.text}: slowdown {diagnosis.slowdown:.2f}"
    figure.text(
        0.12 / width, 1 - 0.3 / height, words, fontsize=11, fontweight="bold", parse_math=False, family=name.family
    )
    return figure
