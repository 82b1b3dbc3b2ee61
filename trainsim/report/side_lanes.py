"""The thin lanes of a Gantt chart, and all lanes where single kernels can be told apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainsim.analysis.kinds import COLUMN
from trainsim.contracts.record import COMPUTE, Label
from trainsim.report.canvas import GAP, Canvas, Note
from trainsim.report.compute_lane import MAIN
from trainsim.report.drawn_ranks import DrawnRank, look_of, named, spans_within
from trainsim.report.intervals import Intervals, joined
from trainsim.report.turns import StreamSpans, by_work, sent_by, turns_of

EDGE = 0.22
"""Height of the lower edge of a box in a thin lane, as a part of the lane."""
READABLE = 30.0
"""Pixels from which on a turn of a pair has a name."""
SAME = 1e-9
"""Seconds between two moments that are one."""
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
        self.actor, self.labels, self.window = actor, tuple(trace.labels), window
        self.columns: dict[str, StreamSpans] = {}
        names: dict[str, None] = {}
        stream = np.array([label.stream for label in self.labels], object)
        for chain in trace.chain_names(actor.rank):
            s = spans_within(actor.lanes, trace.number[int(trace.rank_class[actor.rank]), chain], window)
            of = np.flatnonzero((s.end > window[0]) & (s.start < window[1]))
            self.columns[chain] = StreamSpans(s.label[of], s.microbatch[of], s.start[of], s.end[of])
            names |= dict.fromkeys(stream[np.unique(s.label[of])].tolist() if len(of) else [])
        self.turns = tuple(turns_of(actor, self.columns[COMPUTE], self.labels))
        known = list(COLUMN)
        place = {name: known.index(name) if name in COLUMN else len(known) for name in names}
        self.names = tuple(sorted((n for n in names if n != "compute"), key=lambda name: (place[name], name)))

    def awaited(self, chain: str, moment: float) -> str:
        """What ends on *chain* at a moment, in short, or the name of the chain."""
        spans = self.columns.get(chain)
        if spans is not None and len(spans.end):
            k = int(np.abs(spans.end - moment).argmin())
            if abs(float(spans.end[k]) - moment) <= SAME:
                return self.labels[int(spans.label[k])].name.partition(".")[0]
        return chain

    def draw(self, canvas: Canvas, places: Places) -> None:
        """Every span a box, in the lane of its stream; the name of each pass above its kernels."""
        for spans in self.columns.values():
            for number in np.unique(spans.label).tolist():
                some = StreamSpans(*(column[spans.label == number] for column in spans))
                place = places[self.labels[number].stream]
                if self.labels[number].stream == "compute":
                    self._kernels(canvas, some, self.labels[number], place)
                else:
                    self._sent(canvas, some, self.labels[number], place)
        top = places["compute"][1]
        for name, shorter, first, last in self._titles(canvas.pixel):
            canvas.note(Note(first, last, top + GAP * 0.6, name, "pass", GAP, shorter=shorter))

    def _kernels(self, canvas: Canvas, spans: StreamSpans, label: Label, place: tuple[float, float]) -> None:
        for look, boxes in self._looks(look_of(label), Intervals(spans.start, spans.end)):
            canvas.add(look, boxes, *place)
        for a, b in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
            canvas.note(Note(a, b, sum(place) / 2, label.name, label.kind, place[1] - place[0], upright=True))

    def _sent(self, canvas: Canvas, spans: StreamSpans, label: Label, place: tuple[float, float]) -> None:
        """Boxes of a thin lane; where passes run in pairs, their lower edges have the colour of the one that sends."""
        (bottom, top), passes = place, self.actor.passes
        words, of = sent_by(passes, spans, label, paired=bool(self.turns))
        edge = bottom + EDGE * (top - bottom) if (of >= 0).any() else bottom
        canvas.add(look_of(label), Intervals(spans.start, spans.end), edge, top, beside=True)
        for work, boxes in by_work(passes, spans, of):
            canvas.add(MAIN[work], boxes, bottom, edge, beside=True)
        short = label.name.partition(".")[0]
        forms = (short, short.replace("gradient", "grad"))
        for a, b, text in zip(spans.start.tolist(), spans.end.tolist(), words, strict=True):
            canvas.note(Note(a, b, (edge + top) / 2, text, label.kind, top - edge, shorter=forms))

    def _titles(self, pixel: float) -> Iterator[tuple[str, tuple[str, ...], float, float]]:
        """What stands above the kernels, in short too, and where: each turn of a pair, or pairs where turns are too
        short; else passes."""
        lengths = [turn.end - turn.start for turn in self.turns]
        apart = len(lengths) > 1 and float(np.median(lengths)) > READABLE * pixel
        for turn in self.turns if apart else ():
            yield turn.words, (turn.name,), turn.start, turn.end
        for name, first, last in named(self.actor.passes):
            if not (apart and "&" in name):
                yield name, (), first, last

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
