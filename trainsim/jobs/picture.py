"""The picture of several jobs: a panel per job with the lanes of one of its pipelines, and when links were shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure
from trainsim.report.canvas import GAP, TALL, Scene
from trainsim.report.drawn_ranks import DrawnRank, drawn_ranks
from trainsim.report.panel import LEFT, RIGHT, WIDTH, add_axes, legend, panel, time_axis
from trainsim.report.scene import scene
from trainsim.report.strip import strip
from trainsim.report.windows import WHOLE, Panel, chosen
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.jobs.outcome import Disturbance, JobOutcome, JobsResult, SharedLink

HEAD, BETWEEN, FOOT, LANE = 0.55, 0.62, 0.55, 0.2
"""Inches: title, space under each panel, legend, a lane of a link."""
MOST_LANES = 8
SHARED, FULL = "#c9b3e6", "#8f3514"
"""Two jobs on a link; and more asked of it than it has."""
STRIP_LOOKS = ("forward", "backward", "exposed", "optimizer", "bubble")


def gantt(result: JobsResult) -> Figure:
    """All jobs over the same seconds, from the first instant until all are through with their own steps; nothing is
    written to disk."""
    drawn = [drawn_ranks(job.together, chosen(job.together)) for job in result.jobs]
    lanes = [(pair, link) for pair in result.disturbances for link in pair.links][:MOST_LANES]
    heights = [_height(ranks) for ranks in drawn]
    foot = len(lanes) * LANE + BETWEEN if lanes else 0.0
    total = HEAD + sum(h + BETWEEN for h in heights) + foot + FOOT
    figure = new_figure(figsize=(WIDTH, total), dpi=DPI, facecolor="white")
    top, looks = total - HEAD, set[str]()
    for job, ranks, height in zip(result.jobs, drawn, heights, strict=True):
        axes = add_axes(figure, top - height, height, total)
        looks |= _draw_job(axes, job, ranks, height=height, until=result.duration)
        top -= height + BETWEEN
    if lanes:
        height = len(lanes) * LANE
        _draw_links(add_axes(figure, top - height, height, total), result, lanes)
    _title(figure, result, total)
    note = "links: light, shared by both jobs; dark, oversubscribed" if lanes else ""
    legend(figure, looks, total, note=note, path=False)
    return figure


def _height(ranks: Sequence[DrawnRank]) -> float:
    return float(np.clip(len(ranks) * (0.16 if _dense(ranks) else 0.45), 0.45, 3.6))


def _dense(ranks: Sequence[DrawnRank]) -> bool:
    """Whether single passes could not be told apart."""
    return max(len(rank.passes.start) for rank in ranks) > WHOLE


def _draw_job(axes: Axes, job: JobOutcome, ranks: Sequence[DrawnRank], *, height: float, until: float) -> set[str]:
    """The lanes of one job; what is in them. Its own clock begins at its start."""
    end = min(until - job.start_s, job.together.duration)
    words = f"{format_time(job.alone_s)} a step alone, {format_time(job.together_s)} together (x{job.slowdown:.3f})"
    own = "" if job.steps == job.together.job.steps else f"; {job.steps} own, then more while others run"
    title = f"{job.name}: {words}{own}"
    if _dense(ranks):
        extent = (job.start_s, job.start_s + end, float(len(ranks)), 0.0)
        axes.imshow(strip(ranks, end), extent=extent, aspect="auto", interpolation="antialiased", zorder=2)
        axes.set_yticks([0.5, len(ranks) - 0.5], [f"stage {ranks[0].stage}", f"stage {ranks[-1].stage}"])
        axes.set_ylim(float(len(ranks)), 0.0)
        looks = set(STRIP_LOOKS)
    else:
        seen = scene(job.together, ranks, (0.0, end), detailed=False)
        panel(axes, _shifted(seen, job.start_s), Panel("", 0.0, until), height / max(seen.height, TALL + GAP))
        looks = set(seen.looks)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0.0, until)
    time_axis(axes, Panel("", 0.0, until))
    axes.set_title(title, loc="left", parse_math=False, fontsize=10, fontweight="bold", color="#222222", pad=4)
    return looks


def _shifted(seen: Scene, by: float) -> Scene:
    """What a window shows, so many seconds later."""
    compute, beside = (
        {look: boxes._replace(left=boxes.left + by, right=boxes.right + by) for look, boxes in parts.items()}
        for parts in (seen.compute, seen.beside)
    )
    notes = tuple(note._replace(left=note.left + by, right=note.right + by) for note in seen.notes)
    return replace(seen, compute=compute, beside=beside, notes=notes)


def _draw_links(axes: Axes, result: JobsResult, lanes: Sequence[tuple[Disturbance, SharedLink]]) -> None:
    """When two jobs were on a link, and when it was too much for it."""
    names = []
    for k, (pair, link) in enumerate(lanes):
        for spans, colour, low, high in ((link.shared, SHARED, 0.08, 0.84), (link.full, FULL, 0.2, 0.6)):
            axes.broken_barh(
                list(zip(spans.start.tolist(), spans.seconds.tolist(), strict=True)), (k + low, high), color=colour,
                linewidth=0.3, zorder=2,
            )  # fmt: skip
        names.append(link.name if len(result.jobs) == 2 else f"{link.name}: {pair.first}, {pair.second}")
    axes.set_yticks([k + 0.5 for k in range(len(lanes))], names)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.set_ylim(float(len(lanes)), 0.0)
    axes.set_xlim(0.0, result.duration)
    time_axis(axes, Panel("", 0.0, result.duration))
    axes.set_title("links that jobs share", loc="left", fontsize=10, fontweight="bold", color="#222222", pad=4)


def _title(figure: Figure, result: JobsResult, height: float) -> None:
    name = legible(result.name)
    figure.text(
        LEFT / WIDTH, 1 - 0.2 / height, name.text, fontsize=13, fontweight="bold", color="#111111", va="center",
        parse_math=False, family=name.family,
    )  # fmt: skip
    text = f"all are done after {format_time(result.duration)}"
    figure.text(1 - RIGHT / WIDTH, 1 - 0.2 / height, text, fontsize=10, color="#222222", ha="right", va="center")
