"""Spans of a chain as events of a trace: the text of a run is made once and filled in by numbers, a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from trainsim.contracts.record import Label
from trainsim.contracts.trace import Floats, Ints, Trace
from trainsim.report.trace_tracks import StreamLayer, Tracks, nanoseconds

BEGIN, LENGTH, MICROBATCH, WAITED, NUMBER = range(5)
"""The numbers of a span: microseconds, and NUMBER counts the spans of a rank."""


class SpanText(NamedTuple):
    """The text of a span with room for numbers, and which numbers fill it."""

    text: str
    numbers: tuple[int, ...]


TextOf = Callable[[Label, int], SpanText]
"""The text of a label on a thread."""


class Alike(NamedTuple):
    """Rows of one run in one layer: they have one text."""

    run: int
    layer: int
    rows: int


class ChainSpans(NamedTuple):
    """The spans of a chain in the order in which they are written: rows that are alike behind each other. Times in
    nanoseconds of the file; ``numbers`` is spans x 5."""

    chain: str
    alike: tuple[Alike, ...]
    begin: Ints
    end: Ints
    numbers: Floats

    @classmethod
    def of(
        cls, trace: Trace, rank: int, chain: str, tracks: Tracks, *, window: tuple[float, float] = (0.0, np.inf),
        ahead: int = 0, first: int = 0,
    ) -> ChainSpans:  # fmt: skip
        """The spans of a rank's *chain* whose rows start in *window* (seconds), counted from *first* on; their file
        begins *ahead* nanoseconds before the step."""
        number = trace.number[int(trace.rank_class[rank]), chain]
        rows, layers = trace.rows(number), tracks.layers[chain]
        shown = np.flatnonzero((rows.start >= window[0]) & (rows.start < window[1]))
        width = int(layers.max(initial=0)) + 1
        key = (rows.run * width + layers)[shown]
        kinds, count = np.unique(key, return_counts=True)
        spans = trace.spans_of(number, shown[np.argsort(key, kind="stable")])
        begin, start, end = (nanoseconds(of, ahead) for of in (spans.posted, spans.start, spans.end))
        count_through = np.arange(first, first + len(end))
        columns = [begin / 1e3, (end - begin) / 1e3, spans.microbatch, (start - begin) / 1e3, count_through]
        alike = tuple(
            Alike(kind // width, kind % width, many) for kind, many in zip(kinds.tolist(), count.tolist(), strict=True)
        )
        return cls(chain, alike, begin, end, np.stack(columns, axis=1))

    def labels(self, trace: Trace) -> Iterator[tuple[Sequence[Label], int, int]]:
        """(Labels of a run, layer, rows) in the order of the spans."""
        for run, layer, rows in self.alike:
            yield trace.runs[run].labels, layer, rows

    def written(self, trace: Trace, tracks: Tracks, piece_of: TextOf, on_gpu: Callable[[Label], bool]) -> Iterator[str]:
        """Their events, each with a comma and a line's end before it."""
        width, span = self.numbers.shape[1], 0
        pieces: dict[tuple[int, int], SpanText] = {}  # by label, of which there may be many that are equal, and layer
        for labels, layer, rows in self.labels(trace):
            texts, places = [], []
            for k, label in enumerate(labels):
                piece = pieces.get((id(label), layer))
                if piece is None:
                    thread = tracks.threads[StreamLayer(self.chain, label.stream, layer, on_gpu(label))]
                    piece = pieces[id(label), layer] = piece_of(label, thread)
                texts.append(piece.text)
                places += [k * width + number for number in piece.numbers]
            size = rows * len(labels)
            numbers = self.numbers[span : span + size].reshape(rows, width * len(labels))
            yield from fill("".join(texts), numbers[:, places])
            span += size


def fill(text: str, numbers: Floats) -> Iterator[str]:
    """*text* with each row of *numbers* in it, some rows at a time."""
    few = max(1, 40000 // numbers.shape[1])
    for k in range(0, len(numbers), few):
        some = numbers[k : k + few]
        yield text * len(some) % tuple(some.ravel().tolist())
