"""The thin lanes of a Gantt chart, and all lanes where single kernels can be told apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Floats, Ints
from trainsim.report.canvas import GAP, Canvas, Note
from trainsim.report.compute_lane import MAIN
from trainsim.report.drawn_ranks import DrawnRank, look_of, named, spans_within
from trainsim.report.intervals import Intervals, joined

LEAST = 0.12
"""The lowest band of a communication lane that is still seen, as a part of the lane."""
Places = dict[str, tuple[float, float]]
"""Stream -> bottom and top of its lane."""


def thin_lanes(actor: DrawnRank) -> tuple[str, ...]:
    """The names of the lanes under the compute lane."""
    return (*(("pp",) if len(actor.sent.start) else ()), *(lane.name for lane in actor.chains))


def draw_beside(canvas: Canvas, actor: DrawnRank, places: Places) -> None:
    """Messages, and what chains beside the passes do; what is less than a pixel apart is one box, as high as its
    share of that time."""
    if "pp" in places:
        canvas.add("pp", actor.sent, *places["pp"], beside=True)
    for name, looks in actor.beside(canvas.window).items():
        bottom, top = places[name]
        for look, spans in looks.items():
            boxes, share = joined(spans, canvas.pixel)
            canvas.add(look, boxes, bottom, bottom + (top - bottom) * np.maximum(share, LEAST), beside=True)


class Streams:
    """The spans of one rank in a window, by stream."""

    def __init__(self, actor: DrawnRank, window: tuple[float, float]):
        trace = actor.lanes.trace
        self.actor, self.labels = actor, trace.labels
        self.columns: list[tuple[Ints, Floats, Floats]] = []
        names: dict[str, None] = {}
        stream = np.array([label.stream for label in self.labels], object)
        for chain in trace.chain_names(actor.rank):
            s = spans_within(actor.lanes, trace.number[int(trace.rank_class[actor.rank]), chain], window)
            of = np.flatnonzero((s.end > window[0]) & (s.start < window[1]))
            self.columns.append((s.label[of], s.start[of], s.end[of]))
            names |= dict.fromkeys(stream[np.unique(s.label[of])].tolist() if len(of) else [])
        self.names = tuple(sorted((n for n in names if n != "compute"), key=list(COLUMN).index))

    def draw(self, canvas: Canvas, places: Places) -> None:
        """Every span a box, in the lane of its stream; the name of each pass above its kernels."""
        for labels, start, end in self.columns:
            for number in np.unique(labels).tolist():
                of, label = labels == number, self.labels[number]
                place = places[label.stream]
                for look, spans in self._looks(look_of(label), Intervals(start[of], end[of])):
                    canvas.add(look, spans, *place, beside=label.stream != "compute")
                for a, b in zip(start[of].tolist(), end[of].tolist(), strict=True):
                    canvas.note(Note(a, b, sum(place) / 2, label.name, label.kind, place[1] - place[0]))
        top = places["compute"][1]
        for name, first, last in named(self.actor.passes):
            canvas.note(Note(first, last, top + GAP * 0.6, name, "pass", GAP))

    def _looks(self, look: str, spans: Intervals) -> Iterator[tuple[str, Intervals]]:
        """Kernels of half a backward look like that half."""
        passes = self.actor.passes
        if look != "backward" or not len(passes.work):
            yield look, spans
            return
        at = np.searchsorted(passes.start, spans.start, side="right") - 1
        own = np.array([MAIN[work] for work in passes.work], object)[np.maximum(at, 0)]
        own[own == "forward"] = look
        for name in dict.fromkeys(own.tolist()):
            yield name, spans.where(own == name)
