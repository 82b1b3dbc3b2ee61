"""A step as it was, without launch delays, above the ideal one: two panels of a Gantt chart on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainsim.diagnosis.lowering import PlayedStep, play
from trainsim.diagnosis.operations import BACKWARD, COLLECTOR, FORWARD, NUMBER, TYPES, UPDATE
from trainsim.errors import UnknownName
from trainsim.figures import DPI, legible
from trainsim.figures import figure as new_figure
from trainsim.report.canvas import GAP, TALL, THIN, Canvas, Note, Row, Scene
from trainsim.report.intervals import Intervals
from trainsim.report.panel import LEFT, RIGHT, WIDTH, add_axes, legend, panel
from trainsim.report.windows import MOST, Panel
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.diagnosis.diagnosis import Diagnosis

HEAD, BETWEEN, FOOT, TALLEST, LANE = 0.62, 0.66, 0.95, 5.2, 0.42
"""Inches: title, space under a panel for its axis, legend; the lanes of a panel, and a lane where there is room."""
ALL = 8
"""Workers up to which all are drawn; of more, one replica."""
LOOK = {FORWARD: "forward", BACKWARD: "backward", COLLECTOR: "host", UPDATE: "optimizer"}
READING = "numbers: microbatch; communication starts when all participants have arrived"


def two_timelines(diagnosis: Diagnosis, step: int | None) -> Figure:
    """The figure; *step*: None for one that takes about the mean time."""
    replay = diagnosis.replay
    number = _typical(diagnosis) if step is None else step
    where = [(k, part.steps.index(number)) for k, part in enumerate(replay.parts) if number in part.steps]
    if not where:
        raise UnknownName("step that was replayed", str(number), list(map(str, replay.steps)))
    k, column = where[0]
    structure = replay.parts[k].structure
    real, ideal = (play(structure, some[k][:, column]) for some in (replay.own, replay.ideal))
    workers = _drawn(diagnosis)
    until = max(real.seconds, ideal.seconds)
    scenes = [_scene(played, workers, until) for played in (real, ideal)]
    scale = min(LANE, TALLEST / scenes[0].height)
    tall = scenes[0].height * scale
    total = HEAD + 2 * (tall + BETWEEN) + FOOT - 0.3
    figure = new_figure(figsize=(WIDTH, total), dpi=DPI, facecolor="white")
    titles = (
        f"step {number}, without launch delays: {format_time(real.seconds)}",
        f"ideal: {format_time(ideal.seconds)}",
    )
    for place, (drawn, title) in enumerate(zip(scenes, titles, strict=True)):
        bottom = total - HEAD - tall - place * (tall + BETWEEN)
        axes = add_axes(figure, bottom, tall, total)
        panel(axes, drawn, Panel(title, 0.0, until), scale)
        _names(axes, drawn, diagnosis, workers)
        for played, end in ((real, real.seconds), (ideal, ideal.seconds)):
            if played is (real, ideal)[place] and end < until:
                axes.axvline(end, color="#c0142b", linewidth=1.0, zorder=8)
    _title(figure, diagnosis, total, len(workers))
    legend(figure, set().union(*(drawn.looks for drawn in scenes)), total, note=READING, path=False)
    return figure


def _typical(diagnosis: Diagnosis) -> int:
    mean = diagnosis.step_without_launch_delay_s
    return min(diagnosis.steps, key=lambda one: abs(one.without_launch_delay - mean)).step


def _drawn(diagnosis: Diagnosis) -> list[int]:
    """All workers of a small job; of a larger one those of the slowest replica, and of many stages some."""
    scores = diagnosis.by_worker
    if len(scores) <= ALL:
        return list(range(len(scores)))
    slowest = max(range(len(scores)), key=lambda k: (diagnosis.by_replica[scores[k].dp_rank], scores[k].slowdown))
    replica = [k for k, score in enumerate(scores) if score[:2] == scores[slowest][:2]]
    if len(replica) <= MOST:
        return replica
    worst = max(replica, key=lambda k: scores[k].slowdown)
    some = np.linspace(0, len(replica) - 1, MOST - 1).astype(int).tolist()
    return sorted({worst, *(replica[k] for k in some)})


def _scene(played: PlayedStep, workers: list[int], until: float) -> Scene:
    canvas, rows, y = Canvas((0.0, until)), list[Row](), 0.0
    for worker in workers:
        stage = played.structure.workers[worker][2]
        rows.append(Row(rank=worker, stage=stage, stream="compute", bottom=y - TALL, top=y))
        _compute(canvas, played, worker, y)
        y -= TALL
        for stream in ("pp", "dp"):
            which = _beside(played, worker, stream)
            if len(which):
                rows.append(Row(rank=worker, stage=stage, stream=stream, bottom=y - THIN, top=y))
                for k in which.tolist():
                    canvas.add(stream, _one(played.start[k], played.end[k]), y - THIN, y - 0.04, beside=True)
                y -= THIN
        y -= GAP
    return canvas.scene(tuple(rows), detailed=False)


def _compute(canvas: Canvas, played: PlayedStep, worker: int, top: float) -> None:
    """The passes and the end of a step of one worker; what lies between is idle."""
    structure, free = played.structure, 0.0
    own = np.isin(structure.type, [NUMBER[name] for name in LOOK]) & (structure.worker == worker)
    which = np.flatnonzero(own)
    for k in which[np.argsort(played.start[which], kind="stable")].tolist():
        start, end, look = float(played.start[k]), float(played.end[k]), LOOK[TYPES[structure.type[k]]]
        canvas.add("bubble", _one(free, start), top - TALL, top)
        canvas.add(look, _one(start, end), top - TALL, top)
        if (number := int(structure.microbatch[k])) >= 0 and look in ("forward", "backward"):
            canvas.note(Note(start, end, top - TALL / 2, str(number), look, TALL, number=number, lane=worker))
        free = end
    canvas.add("bubble", _one(free, played.seconds), top - TALL, top)


def _beside(played: PlayedStep, worker: int, stream: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The messages of a worker, or all its other communication."""
    structure = played.structure
    message = np.array([name.endswith(("-send", "-recv")) for name in TYPES])[structure.type]
    compute = np.isin(structure.type, [NUMBER[name] for name in LOOK])
    which = message if stream == "pp" else ~message & ~compute
    return np.flatnonzero(which & (structure.worker == worker))


def _names(axes: Axes, drawn: Scene, diagnosis: Diagnosis, workers: list[int]) -> None:
    """Workers at the left."""
    middles = [(row.bottom + row.top) / 2 for row in drawn.rows if row.stream == "compute"]
    names = [f"dp {diagnosis.by_worker[k].dp_rank}, stage {diagnosis.by_worker[k].stage}" for k in workers]
    axes.set_yticks(middles, names)
    axes.tick_params(axis="y", labelsize=8.0, pad=12)


def _title(figure: Figure, diagnosis: Diagnosis, total: float, workers: int) -> None:
    name, y = legible(diagnosis.name), 1 - 0.2 / total
    figure.text(LEFT / WIDTH, y, name.text, fontsize=13, fontweight="bold", color="#111111", va="center",
                parse_math=False, family=name.family)  # fmt: skip
    times = f"mean step {format_time(diagnosis.step_s)}, ideal {format_time(diagnosis.ideal_step_s)}"
    facts = f"slowdown {diagnosis.slowdown:.3f}    {times}"
    if workers < len(diagnosis.by_worker):
        facts += f"    {workers} of {len(diagnosis.by_worker)} workers"
    figure.text(1 - RIGHT / WIDTH, y, facts, fontsize=10, color="#222222", ha="right", va="center")


def _one(start: float, end: float) -> Intervals:
    return Intervals(np.array([start]), np.array([max(start, end)]))
