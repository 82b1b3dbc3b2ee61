"""The geometry of a Gantt chart: boxes and texts in seconds and lane heights, without any drawing library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainsim.analysis.lanes import Floats
from trainsim.report.intervals import Intervals

TALL, THIN, GAP = 1.0, 0.30, 0.18
"""Heights of a compute lane, of a communication lane, and of the space between ranks."""
PIXELS = 1500
"""About what a panel is wide."""
NARROW, ALIKE = 4.0, 0.02
"""Neighbours are drawn as one box if they are narrower than so many pixels and their edges differ by less (lane
heights)."""


class Boxes(NamedTuple):
    """Equally long columns: left, right (seconds), bottom, top (lane heights)."""

    left: Floats
    right: Floats
    bottom: Floats
    top: Floats

    @property
    def area(self) -> float:
        """Seconds x lane heights."""
        return float(((self.right - self.left) * (self.top - self.bottom)).sum())


class Note(NamedTuple):
    """A text in a box: where it may stand. ``number`` is the microbatch that it names, -1 for any other text;
    ``shorter`` forms come where it has no room, and ``upright`` ones where none of them has."""

    left: float
    right: float
    middle: float
    text: str
    kind: str
    tall: float
    number: int = -1
    lane: int = 0
    shorter: tuple[str, ...] = ()
    upright: bool = False


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
    """Everything to draw in one window: boxes by how they look, texts, lanes. The first rank is on top, at y = 0
    downwards.

    ``compute`` are the boxes of the compute lanes, to scale: seconds x height is the time that a rank spends so.
    ``beside`` are those of the thin lanes under them. ``turns``: kernels of passes that take turns are among them.
    """

    window: tuple[float, float]
    rows: tuple[Row, ...]
    compute: Mapping[str, Boxes]
    beside: Mapping[str, Boxes]
    notes: tuple[Note, ...]
    detailed: bool
    turns: bool = False

    @property
    def height(self) -> float:
        """Lane heights of all lanes."""
        return -min((row.bottom for row in self.rows), default=0.0)

    @property
    def pixel(self) -> float:
        """Seconds per pixel, about."""
        return (self.window[1] - self.window[0]) / PIXELS

    @property
    def looks(self) -> set[str]:
        """What can be seen: kinds of boxes that are at least a pixel wide together."""
        boxes = [*self.compute.items(), *self.beside.items()]
        return {look for look, some in boxes if float((some.right - some.left).sum()) > self.pixel}


class Canvas:
    """Collects boxes and texts, clipped to a window."""

    def __init__(self, window: tuple[float, float]):
        self.window = window
        self.pixel = (window[1] - window[0]) / PIXELS
        self.compute: defaultdict[str, list[Boxes]] = defaultdict(list)
        self.beside: defaultdict[str, list[Boxes]] = defaultdict(list)
        self.notes: list[Note] = []

    def add(
        self, look: str, spans: Intervals, bottom: Floats | float, top: Floats | float, *, beside: bool = False
    ) -> None:
        """Boxes over *spans*, of one height or of one each."""
        first, last = self.window
        seen = (spans.end > first) & (spans.start < last) & (spans.end > spans.start)
        if seen.any():
            low, high = (np.broadcast_to(edge, seen.shape)[seen] for edge in (bottom, top))
            boxes = Boxes(spans.start[seen].clip(first), spans.end[seen].clip(max=last), low, high)
            (self.beside if beside else self.compute)[look].append(boxes)

    def note(self, note: Note) -> None:
        """A text that has at least a few pixels."""
        first, last = self.window
        left, right = max(note.left, first), min(note.right, last)
        if right - left > 2 * self.pixel:
            self.notes.append(note._replace(left=left, right=right))

    def scene(self, rows: tuple[Row, ...], *, detailed: bool, turns: bool = False) -> Scene:
        """What was collected, as a value."""
        compute, beside = (
            {look: _merged(some, NARROW * self.pixel) for look, some in parts.items()}
            for parts in (self.compute, self.beside)
        )
        return Scene(
            window=self.window,
            rows=rows,
            compute=compute,
            beside=beside,
            notes=tuple(self.notes),
            detailed=detailed,
            turns=turns,
        )


def _merged(parts: list[Boxes], narrow: float) -> Boxes:
    """All boxes, those joined that are *narrow*, alike, and follow each other at once; the area stays.

    >>> _merged([Boxes(*np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 9.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.5]]))], 3.0).right
    array([2., 9.])
    """
    boxes = Boxes(*map(np.concatenate, zip(*parts, strict=True)))
    left, right, bottom, top = boxes
    order = np.lexsort((left, np.round((bottom + top) / 2, 1)))
    left, right, bottom, top = (column[order] for column in boxes)
    thin = right - left < narrow
    alike = (np.abs(np.diff(bottom)) < ALIKE) & (np.abs(np.diff(top)) < ALIKE) & (left[1:] == right[:-1])
    heads = np.flatnonzero(np.append(True, ~(alike & thin[1:] & thin[:-1])))
    tails = np.append(heads[1:], len(left)) - 1
    length = np.add.reduceat(right - left, heads)
    low, high = (np.add.reduceat(edge * (right - left), heads) / length for edge in (bottom, top))
    return Boxes(left[heads], right[tails], low, high)
