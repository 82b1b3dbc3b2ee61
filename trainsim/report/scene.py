"""What a Gantt chart shows in one window: every lane of some ranks, laid out above each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainsim.report.canvas import GAP, TALL, THIN, Canvas, Row, Scene
from trainsim.report.compute_lane import WAITS, draw_compute, say_why
from trainsim.report.drawn_ranks import DrawnRank
from trainsim.report.side_lanes import Streams, draw_beside, thin_lanes

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis


def scene(result: StepAnalysis, stages: Sequence[DrawnRank], window: tuple[float, float], *, detailed: bool) -> Scene:
    """What the window shows: passes as boxes, or (*detailed*) every kernel and collective."""
    canvas, rows, y, turns = Canvas(window), list[Row](), 0.0, False
    for actor in stages:
        streams = Streams(actor, window) if detailed else None
        top, places = y, dict[str, tuple[float, float]]()
        for k, stream in enumerate(("compute", *(streams.names if streams else thin_lanes(actor)))):
            bottom = y - (THIN if k else TALL)
            places[stream] = (bottom, y - 0.04 * bool(k))
            rows.append(Row(rank=actor.rank, stage=actor.stage, stream=stream, bottom=bottom, top=y))
            y = bottom
        if streams:
            _draw_waits(canvas, actor, top, streams)
            streams.draw(canvas, places)
            turns |= bool(streams.turns)
        else:
            draw_compute(canvas, actor, top)
            draw_beside(canvas, actor, places)
        y -= GAP
    return canvas.scene(tuple(rows), detailed=detailed, turns=turns)


def _draw_waits(canvas: Canvas, actor: DrawnRank, top: float, streams: Streams) -> None:
    doing = actor.doing(canvas.window)
    for look in WAITS:
        canvas.add(look, doing[look], top - TALL, top)
    say_why(canvas, actor, top, update=False, awaited=streams.awaited)
