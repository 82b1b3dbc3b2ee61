"""The geometry of a Gantt chart: boxes and labels in seconds and lane heights, without any drawing library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Floats, Ints, Lanes
from trainsim.analysis.slots import Idle, Passes, Piece, idle, slots, update, whole
from trainsim.report.beside import DATA, Spans, joined, look_of, spans_of

if TYPE_CHECKING:
    from trainsim.result.result import Result

TALL, THIN, GAP = 1.0, 0.30, 0.18
"""Heights of a compute lane, of a communication lane, and of the space between ranks."""
PIXELS = 1500
"""About what a panel is wide: what is closer than a pixel is drawn as one box."""
BANDS = ("recompute", "tp", "cp", "ep", "offload", "host", "delay")
"""What a pass is made of besides kernels of its own direction: drawn as bands whose height is their share."""
APART = 3
"""Pixels between spans of a communication lane from which on they are drawn one by one."""
LEAST = 0.12
"""The lowest band of a communication lane that is still seen, as a part of the lane."""
BAR = 0.22
"""Height of the bar that marks the last chunk; of chunks in between it is a part."""
MAIN = {"F": "forward", "B": "backward", "I": "input", "W": "weight"}
"""How each pass of the schedule looks."""


class Boxes(NamedTuple):
    """Equally long columns: left, right (seconds), bottom, top (lane heights)."""

    left: Floats
    right: Floats
    bottom: Floats
    top: Floats


class Note(NamedTuple):
    """A text in a box: where it may stand."""

    left: float
    right: float
    middle: float
    text: str
    kind: str
    tall: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One lane: its stream, its vertical place (bottom, top) and its rank."""

    rank: int
    stage: int
    stream: str
    bottom: float
    top: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything to draw in one window: boxes by kind, texts, lanes. The first rank is on top, at y = 0 downwards."""

    window: tuple[float, float]
    rows: tuple[Row, ...]
    boxes: dict[str, Boxes]
    notes: tuple[Note, ...]
    detailed: bool

    @property
    def height(self) -> float:
        return -min((row.bottom for row in self.rows), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One rank to draw, with everything that its lanes need."""

    rank: int
    number: int
    slots: Passes
    idle: Idle
    sent: tuple[Floats, Floats]
    beside: dict[str, Spans]
    update: tuple[Piece, ...]


def actors(result: Result, ranks: Sequence[int]) -> tuple[Stage, ...]:
    """The ranks to draw as columns."""
    lanes = result.lanes
    return tuple(_actor(lanes, rank, int(lanes.trace.rank_class[rank])) for rank in ranks)


def _actor(lanes: Lanes, rank: int, c: int) -> Stage:
    sent = [lane for lane in lanes.messages if lane.owner == c]
    starts = np.concatenate([lane.start for lane in sent] or [np.zeros(0)])
    ends = np.concatenate([lane.end for lane in sent] or [np.zeros(0)])
    beside = {lane.name: spans_of(lanes, lane) for lane in lanes.others[c] if len(lane)}
    return Stage(
        rank=rank, number=int(lanes.stage[c]), slots=whole(slots(lanes, c)), idle=idle(lanes, c),
        sent=(starts, ends), beside=beside, update=update(lanes, c),
    )  # fmt: skip


class _Canvas:
    """Collects boxes; clips them to the window."""

    def __init__(self, window: tuple[float, float]):
        self.window = window
        self.parts: defaultdict[str, list[Boxes]] = defaultdict(list)
        self.notes: list[Note] = []

    def add(self, kind: str, left: Floats, right: Floats, bottom: Floats | float, top: Floats | float) -> None:
        first, last = self.window
        seen = (right > first) & (left < last) & (right > left)
        if seen.any():
            low, high = np.broadcast_to(bottom, left.shape)[seen], np.broadcast_to(top, left.shape)[seen]
            self.parts[kind].append(Boxes(left[seen].clip(first), right[seen].clip(max=last), low, high))

    def note(self, left: float, right: float, middle: float, text: str, kind: str, tall: float = TALL) -> None:
        first, last = self.window
        left, right = max(left, first), min(right, last)
        if right > left:
            self.notes.append(Note(left, right, middle, text, kind, tall))

    def boxes(self) -> dict[str, Boxes]:
        return {k: Boxes(*map(np.concatenate, zip(*some, strict=True))) for k, some in self.parts.items()}


def scene(result: Result, stages: Sequence[Stage], window: tuple[float, float], *, detailed: bool) -> Scene:
    """What the window shows: passes as boxes, or (*detailed*) every kernel and collective."""
    canvas, rows, y = _Canvas(window), [], 0.0
    for stage in stages:
        streams = _Streams(result, stage, window) if detailed else None
        thin = streams.names if streams else _thin(stage, window)
        top, places = y, {}
        for k, stream in enumerate(("compute", *thin)):
            bottom = y - (THIN if k else TALL)
            places[stream] = (bottom, y - 0.04 * bool(k))
            rows.append(Row(rank=stage.rank, stage=stage.number, stream=stream, bottom=bottom, top=y))
            y = bottom
        _idle(canvas, stage, top - TALL, top)
        if streams:
            streams.draw(canvas, places)
        else:
            _passes(canvas, stage, top - TALL, top)
            _beside(canvas, stage, places)
        y -= GAP
    return Scene(window=window, rows=tuple(rows), boxes=canvas.boxes(), notes=tuple(canvas.notes), detailed=detailed)


def _thin(stage: Stage, window: tuple[float, float]) -> tuple[str, ...]:
    names = ("pp",) if len(stage.sent[0]) else ()
    return (*names, *stage.beside)


def _idle(canvas: _Canvas, stage: Stage, bottom: float, top: float) -> None:
    rest = stage.idle
    own = rest.source == stage.number
    exposed = own & np.isin(np.array(rest.what, object), np.array(DATA, object)) if len(own) else own
    for look, of in (("bubble", ~exposed), ("exposed", exposed)):
        canvas.add(look, rest.start[of], rest.end[of], bottom, top)
    for a, b, source, what in zip(rest.start.tolist(), rest.end.tolist(), rest.source.tolist(), rest.what, strict=True):
        if source >= 0:
            canvas.note(a, b, (bottom + top) / 2, _reason(stage.number, source, what), "bubble")


def _reason(stage: int, source: int, what: str) -> str:
    """
    >>> _reason(3, 2, "pp-forward"), _reason(3, 3, "dp"), _reason(3, 3, "peers")
    ('waits for stage 2', 'waits for dp', 'waits for late peers')
    """
    return f"waits for stage {source}" if source != stage else f"waits for {'late ' * (what == 'peers')}{what}"


def _passes(canvas: _Canvas, stage: Stage, bottom: float, top: float) -> None:
    """Each pass a box, the two of a pair above each other; the bands in it are what it is made of besides its own
    kernels."""
    one, tall = stage.slots, top - bottom
    if len(one.work):
        main = np.array([MAIN[work] for work in one.work])
        low, high = _places(one, bottom, top)
        for kind in np.unique(main).tolist():
            of = main == kind
            canvas.add(kind, one.start[of], one.end[of], low[of], high[of])
        level, length = low.copy(), np.maximum(one.end - one.start, 1e-300)
        for kind in BANDS:
            share = one.seconds[:, COLUMN[kind]] / length
            of = np.flatnonzero(share > 0.004)
            canvas.add(kind, one.start[of], one.end[of], level[of], level[of] + share[of] * (high - low)[of])
            level += share * (high - low)
        _chunks(canvas, one, high, tall)
        _numbers(canvas, one, np.minimum(level, high - 0.4 * (high - low)), high)
    _update(canvas, stage, bottom, top)


def _places(one: Passes, bottom: float, top: float) -> tuple[Floats, Floats]:
    """Bottom and top of each pass: the forward of a pair has the upper half, the backward the lower."""
    middle = (bottom + top) / 2
    return np.where(one.half == 1, middle, bottom), np.where(one.half == -1, middle, top)


def _chunks(canvas: _Canvas, one: Passes, high: Floats, tall: float) -> None:
    """A bar along the top of passes over later chunks; the taller, the later."""
    of = np.flatnonzero(one.chunk > 0)
    if len(of):
        thick = BAR * tall * one.chunk[of] / one.chunk.max() * np.where(one.half[of] == 0, 1.0, 0.6)
        canvas.add("chunk", one.start[of], one.end[of], high[of] - thick, high[of])


def _numbers(canvas: _Canvas, one: Passes, free: Floats, high: Floats) -> None:
    """Microbatches, above the bands if they leave room."""
    for k, work in enumerate(one.work):
        low, top = float(free[k]), float(high[k])
        place = float(one.start[k]), float(one.end[k]), (low + top) / 2
        canvas.note(*place, _name(one, k), MAIN[work], top - low)


def _name(one: Passes, k: int) -> str:
    """``3``, or ``3.1`` for chunk 1."""
    return f"{one.microbatch[k]}" + (f".{one.chunk[k]}" if one.chunk[k] else "")


def named(one: Passes) -> Iterator[tuple[str, float, float]]:
    """Name (``F3.1``), start and end of each pass; two at once have one name (``F3&B1``)."""
    k = 0
    while k < len(one.work):
        pair = k + 1 < len(one.work) and one.half[k] * one.half[k + 1] == -1 and bool(one.start[k + 1] < one.end[k])
        both = [k, k + 1] if pair else [k]
        names = [f"{one.work[j]}{_name(one, j)}" for j in sorted(both, key=lambda j: -one.half[j])]
        yield "&".join(names), float(one.start[k]), float(one.end[both].max())
        k += len(both)


def _update(canvas: _Canvas, stage: Stage, bottom: float, top: float) -> None:
    """The end of the step, kernel by kernel and collective by collective."""
    for piece in stage.update:
        canvas.add(piece.kind, np.array([piece.start]), np.array([piece.end]), bottom, top)
        canvas.note(piece.start, piece.end, (bottom + top) / 2, piece.name, "update", (top - bottom) * 0.7)


def _beside(canvas: _Canvas, stage: Stage, places: dict[str, tuple[float, float]]) -> None:
    if "pp" in places:
        canvas.add("pp", *stage.sent, *places["pp"])
    first, last = canvas.window
    for name, looks in stage.beside.items():
        bottom, top = places[name]
        for look, spans in looks.items():
            start, end, share = joined(*spans, APART * (last - first) / PIXELS)
            canvas.add(look, start, end, bottom, bottom + (top - bottom) * np.maximum(share, LEAST))


class _Streams:
    """The spans of one rank in a window, by stream."""

    def __init__(self, result: Result, stage: Stage, window: tuple[float, float]):
        self.stage, self.labels = stage, result.trace.labels
        self.columns: list[tuple[Ints, Ints, Floats, Floats]] = []
        names: dict[str, None] = {}
        stream = np.array([label.stream for label in self.labels], object)
        for chain in result.trace.chain_names(stage.rank):
            s = result.trace.spans(stage.rank, chain)
            of = np.flatnonzero((s.end > window[0]) & (s.start < window[1]))
            self.columns.append((s.label[of], s.microbatch[of], s.start[of], s.end[of]))
            names |= dict.fromkeys(stream[np.unique(s.label[of])].tolist() if len(of) else [])
        self.names = tuple(sorted((n for n in names if n != "compute"), key=list(COLUMN).index))

    def draw(self, canvas: _Canvas, places: dict[str, tuple[float, float]]) -> None:
        for label, _, start, end in self.columns:
            for one in np.unique(label).tolist():
                of = label == one
                what = self.labels[one]
                bottom, top = places[what.stream]
                self._spans(canvas, look_of(what), (start[of], end[of]), (bottom, top))
                for a, b in zip(start[of].tolist(), end[of].tolist(), strict=True):
                    canvas.note(a, b, (bottom + top) / 2, what.name, what.kind, top - bottom)
        bottom, top = places["compute"]
        for name, first, last in named(self.stage.slots):
            canvas.note(first, last, top + GAP * 0.6, name, "pass", GAP)

    def _spans(self, canvas: _Canvas, kind: str, times: tuple[Floats, Floats], place: tuple[float, float]) -> None:
        """Kernels of half a backward look like that half."""
        one, looks = self.stage.slots, np.full(len(times[0]), kind, object)
        if kind == "backward" and len(one.work):
            at = np.searchsorted(one.start, times[0], side="right") - 1
            own = np.array([MAIN[work] for work in one.work], object)[np.maximum(at, 0)]
            looks[:] = np.where(own == "forward", kind, own)
        for look in dict.fromkeys(looks.tolist()):
            of = looks == look
            canvas.add(str(look), times[0][of], times[1][of], *place)
