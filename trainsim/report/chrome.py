"""The step as one Chrome trace of some ranks: loads in Perfetto (ui.perfetto.dev) and chrome://tracing.

Format: "Trace Event Format" of the Chromium project; complete events (``ph: X``), times in microseconds. Categories,
names and arguments are those of the PyTorch profiler. A process per rank, a thread per CUDA stream, or several where
spans overlap; passes above their kernels; arrows from a message's sender to the pass that waited for it. All times lie
on one grid of nanoseconds, so that a span ends exactly where its neighbour starts: Perfetto drops events that cross
another of their thread. Launches are left out: they would make the file three times as large (``report/kineto.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.contracts.record import Label
from trainsim.contracts.trace import Trace
from trainsim.report.trace_file import quoted, write
from trainsim.report.trace_head import head, numbers_of
from trainsim.report.trace_kernels import HOST, Kernels, kernels_of
from trainsim.report.trace_marks import arrows, passes, step_begins, steps
from trainsim.report.trace_spans import BEGIN, LENGTH, MICROBATCH, WAITED, ChainSpans, SpanText
from trainsim.report.trace_tracks import MAIN, Tracks, heads, nanoseconds, thread_names, tracks_of
from trainsim.report.windows import few_of
from trainsim.units import format_time

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis

MOST_EVENTS = 250_000
"""Events of a trace that nobody asked for by ranks: about 80 MB before compression."""


class Excerpt(NamedTuple):
    """What of a step is written: ranks, and a window (seconds) that rows of the trace begin in; *words* say so if that
    is not all of a pipeline."""

    ranks: tuple[int, ...]
    window: tuple[float, float]
    words: str = ""


def excerpt(analysis: StepAnalysis, events: int | None = None) -> Excerpt:
    """A pipeline, or where it has more than so many *events* (None: MOST_EVENTS) a few of its stages, or
    three, or as much of their time as fits."""
    events = MOST_EVENTS if events is None else events
    size = {rank: span_count(analysis.trace, rank) for rank in analysis.pipeline}
    if sum(size.values()) <= events:
        return Excerpt(analysis.pipeline, (0.0, np.inf))
    few = few_of(analysis)
    ranks = (
        few
        if sum(size[rank] for rank in few) <= events
        else tuple(dict.fromkeys((few[0], few[len(few) // 2], few[-1])))
    )
    part = min(1.0, events / sum(size[rank] for rank in ranks))
    end = analysis.duration * part if part < 1 else np.inf
    words = f"ranks {', '.join(map(str, ranks))}" + (f" and the first {format_time(end)}" if part < 1 else "")
    return Excerpt(ranks, (0.0, end), words)


def span_count(trace: Trace, rank: int) -> int:
    """How many spans all chains of a rank have."""
    numbers = [trace.number[int(trace.rank_class[rank]), chain] for chain in trace.chain_names(rank)]
    return sum(int(trace.run_spans.size[trace.rows(number).run].sum()) for number in numbers)


def write_chrome(analysis: StepAnalysis, ranks: Sequence[int] | None, path: Path) -> Path:
    """Write every span of *ranks*, or an excerpt that is not too large, to *path*; gzipped if the name ends in
    ``.gz``."""
    part = excerpt(analysis) if ranks is None else Excerpt(tuple(ranks), (0.0, np.inf))
    return write(_document(analysis, part), path)


def _document(analysis: StepAnalysis, part: Excerpt) -> Iterator[str]:
    trace, kernels = analysis.trace, kernels_of(analysis)
    about = numbers_of(analysis) | ({"excerpt": part.words} if part.words else {})
    yield from head(analysis, kernels, part.ranks, about=about)
    tracks = {rank: tracks_of(trace, rank, kernels.on_gpu) for rank in part.ranks}
    named = []
    for order, rank in enumerate(part.ranks):
        stage = int(trace.stage[trace.rank_class[rank]])
        titles = {MAIN: "host training loop"}
        titles |= {thread: title for thread, (title, _) in thread_names(trace, tracks[rank].threads).items()}
        named += heads(rank, f"stage {stage} · rank {rank}", f"stage {stage}", order, titles)
    yield ",\n".join(json.dumps(event, ensure_ascii=False) for event in named)
    for rank in part.ranks:
        yield from _rank(analysis, kernels, rank, tracks[rank], part.window)
    yield from arrows(analysis, kernels, tracks, part.window)
    yield "\n]}\n"


def _rank(
    analysis: StepAnalysis, kernels: Kernels, rank: int, tracks: Tracks, window: tuple[float, float]
) -> Iterator[str]:
    """The events of one rank."""
    trace, lanes = analysis.trace, analysis.lanes
    piece_of = partial(_piece, kernels, rank)
    for chain in trace.chain_names(rank):
        spans = ChainSpans.of(trace, rank, chain, tracks, window=window)
        yield from spans.written(trace, tracks, piece_of, kernels.on_gpu)
    yield from passes(lanes, rank, rank, window=window)
    begins = step_begins(lanes, rank)
    end = int(nanoseconds(np.array([min(analysis.duration, window[1])]))[0])
    yield from steps(begins[begins < end], end, rank)


def _piece(kernels: Kernels, rank: int, label: Label, thread: int) -> SpanText:
    """The event of a label's spans on a thread: start, length, microbatch, and how long a collective waited for its
    peers."""
    shown = kernels.shown(label)
    waits = ',"waited_us":%.3f' if shown.operation else ""
    stream = f'"stream":{thread},' if shown.category != HOST else ""
    text = (
        f',\n{{"ph":"X","cat":"{shown.category}","name":{quoted(shown.name)},"pid":{rank},"tid":{thread},"ts":%.3f,'
        f'"dur":%.3f,"args":{{{stream}{known(label)}{waits}{kernels.recorded(label, rank)}}}}}'
    )
    return SpanText(text, (BEGIN, LENGTH, MICROBATCH, WAITED) if waits else (BEGIN, LENGTH, MICROBATCH))


def known(label: Label) -> str:
    """What this program calls a span, inside of ``args``, with room for its microbatch."""
    nbytes = sum(payload.nbytes for payload in label.payloads)
    return f'"operation":{quoted(label.name)},"kind":{quoted(label.kind)},"microbatch":%d,"layer":{label.layer}' + (
        f',"bytes":{nbytes:.0f}' if nbytes else ""
    )
