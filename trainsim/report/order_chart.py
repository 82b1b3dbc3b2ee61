"""The order of a schedule as a picture: a lane per rank, in the look of a Gantt chart, from a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainsim.figures import DPI
from trainsim.figures import figure as new_figure
from trainsim.report.canvas import GAP, TALL, Canvas, Note, Row, Scene
from trainsim.report.compute_lane import BAR, MAIN
from trainsim.report.intervals import Intervals
from trainsim.report.panel import LEFT, RIGHT, WIDTH, add_axes, legend, panel
from trainsim.report.windows import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainsim.replaying import Replay
    from trainsim.schedules.cells import Cell

READING = "numbers: microbatch; a bar on top: later chunk of the rank; above each other: two passes at once"
EVEN = "time, where forward, I and W of all layers of a rank take 1 each"
HEAD, FOOT, TALLEST, LANE = 0.62, 1.1, 9.0, 0.5
"""Inches: the title, the axis and the legend, all lanes together, and a lane where there is room."""


def order_chart(name: str, step: Replay, *, slices: int = 1, axis: str = EVEN) -> Figure:
    """A replayed schedule as a matplotlib figure; *slices* is how many a microbatch is cut into, *axis* says what its
    times are."""
    drawn, ranks = order_scene(step, slices=slices), len(step.order.rows)
    scale = min(LANE, TALLEST / drawn.height)
    total = HEAD + drawn.height * scale + FOOT
    figure = new_figure(figsize=(WIDTH, total), dpi=DPI, facecolor="white")
    axes = add_axes(figure, FOOT, drawn.height * scale, total)
    panel(axes, drawn, Panel("", *drawn.window), scale)
    axes.set_yticks(axes.get_yticks(), [f"rank {rank}" for rank in range(ranks)])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(axis, fontsize=8.5, color="#444444")
    bubble, y = step.bubble, 1 - 0.25 / total
    facts = f"{ranks} ranks    makespan {step.makespan:g}    bubble {bubble.fraction:.1%}, of the span"
    facts += f" {bubble.span_fraction:.1%}"
    figure.text(LEFT / WIDTH, y, name, fontsize=13, fontweight="bold", color="#111111", va="center")
    figure.text(1 - RIGHT / WIDTH, y, facts, fontsize=10, color="#222222", ha="right", va="center")
    legend(figure, drawn.looks, total, note=READING, path=False)
    return figure


def order_scene(step: Replay, *, slices: int = 1) -> Scene:
    """The passes of every rank as boxes; two that run at once share the height of the lane."""
    canvas, rows = Canvas((0.0, step.makespan)), list[Row]()
    ranks = len(step.order.rows)
    last = max((cell.stage // ranks for row in step.order.rows for cells in row for cell in cells), default=0)
    for rank, row in enumerate(step.order.rows):
        top = -rank * (TALL + GAP)
        rows.append(Row(rank=rank, stage=rank, stream="compute", bottom=top - TALL, top=top))
        free = 0.0
        for cells, start, end in zip(row, step.starts[rank].tolist(), step.ends[rank].tolist(), strict=True):
            canvas.add("bubble", _one(free, start), top - TALL, top)
            tall = TALL / len(cells)
            for k, cell in enumerate(cells):
                _draw(canvas, cell, _one(start, end), (top - (k + 1) * tall, top - k * tall), slices=slices, rank=rank)
                if chunk := cell.stage // ranks:
                    edge = top - k * tall
                    canvas.add("chunk", _one(start, end), edge - BAR * tall * chunk / last, edge)
            free = end
        canvas.add("bubble", _one(free, step.makespan), top - TALL, top)
    return canvas.scene(tuple(rows), detailed=False)


def _draw(canvas: Canvas, cell: Cell, span: Intervals, place: tuple[float, float], *, slices: int, rank: int) -> None:
    look, number = MAIN[cell.work], cell.microbatch // slices
    canvas.add(look, span, *place)
    canvas.note(
        Note(
            float(span.start[0]), float(span.end[0]), sum(place) / 2, str(number), look, place[1] - place[0],
            number=number, lane=rank,
        )
    )  # fmt: skip


def _one(start: float, end: float) -> Intervals:
    return Intervals(np.array([start]), np.array([max(start, end)]))
