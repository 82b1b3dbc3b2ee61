"""The step as a Chrome trace: loads in Perfetto (ui.perfetto.dev) and chrome://tracing.

Format: "Trace Event Format" of the Chromium project; complete events (``ph: X``), times in microseconds. A process per
rank, a thread per chain and stream, or several where spans overlap; arrows from a message's sender to the pass that
waited for it. All times lie on one grid of nanoseconds, so that a span ends exactly where its neighbour starts:
Perfetto drops events that cross another of their thread.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainsim.contracts.record import COMPUTE, Label
from trainsim.contracts.trace import Floats, Ints, Trace
from trainsim.report.windows import few_of
from trainsim.units import format_time

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis

MOST_EVENTS = 250_000
"""Events of a trace that nobody asked for by ranks: about 33 MB before compression."""
STREAMS = ("compute", "tp", "cp", "ep", "pp", "dp", "offload")
"""Threads in this order; other streams follow."""
Threads = dict[tuple[str, str, int], int]
"""(chain, stream, layer) -> thread; spans that overlap lie in different layers."""


class Tracks(NamedTuple):
    """The threads of a rank, and in which layer each row of each of its chains lies."""

    threads: Threads
    layers: dict[str, Ints]


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
    size = {rank: _spans(analysis.trace, rank) for rank in analysis.pipeline}
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


def _spans(trace: Trace, rank: int) -> int:
    """How many spans all chains of a rank have."""
    numbers = [trace.number[int(trace.rank_class[rank]), chain] for chain in trace.chain_names(rank)]
    return sum(int(trace.run_spans.size[trace.rows(number).run].sum()) for number in numbers)


def write_chrome(analysis: StepAnalysis, ranks: Sequence[int] | None, path: Path) -> Path:
    """Write every span of *ranks*, or an excerpt that is not too large, to *path*; gzipped if the name ends in ``.gz``,
    quickly and beside the formatting."""
    part = excerpt(analysis) if ranks is None else Excerpt(tuple(ranks), (0.0, np.inf))
    parts = _batches(_document(analysis, part))
    if path.suffix != ".gz":
        path.write_bytes(b"".join(parts))
        return path
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)  # 31: with the header of gzip, which then holds no time

    def pack(part: bytes) -> None:
        file.write(packer.compress(part))

    with path.open("wb") as file, ThreadPoolExecutor(1) as beside:
        jobs = [beside.submit(pack, part) for part in parts]
        for job in jobs:
            job.result()
        file.write(packer.flush())
    return path


def _batches(parts: Iterable[str], characters: int = 1 << 20) -> Iterator[bytes]:
    """*parts* joined until they are worth handing over."""
    held: list[str] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size > characters:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


def nanoseconds(seconds: Floats) -> Ints:
    """Times on the grid of the file. Perfetto multiplies microseconds by 1,000 in float64 and cuts off what is behind
    the point, which turns 0.6 % of all nanoseconds into the one before: those are left out.

    >>> nanoseconds(np.array([1e-9, 0.0010000000003])).tolist()
    [1, 1000000]
    """
    grid = np.round(seconds * 1e9).astype(np.int64)
    while (lost := (grid / 1e3 * 1e3).astype(np.int64) != grid).any():
        grid[lost] += 1
    return grid


def _document(analysis: StepAnalysis, part: Excerpt) -> Iterator[str]:
    trace, ranks = analysis.trace, part.ranks
    about: dict[str, Any] = {
        "name": analysis.name, "step_time_s": analysis.step_time, **analysis.rates,
        "bubble": analysis.bubble.fraction,
    }  # fmt: skip
    about |= {"excerpt": part.words} if part.words else {}
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'
    tracks = {rank: tracks_of(trace, rank) for rank in ranks}
    heads = []
    for order, rank in enumerate(ranks):
        stage = int(trace.stage[trace.rank_class[rank]])
        heads += _names(trace, tracks[rank].threads, rank, f"stage {stage} · rank {rank}", order)
    yield ",\n".join(json.dumps(head, ensure_ascii=False) for head in heads)
    for rank in ranks:
        for chain in trace.chain_names(rank):
            yield from _chain(trace, rank, chain, tracks[rank], part.window)
    yield from _arrows(analysis, {int(trace.rank_class[rank]): rank for rank in ranks}, tracks, part.window)
    yield "\n]}\n"


def tracks_of(trace: Trace, rank: int) -> Tracks:
    """Streams of the compute chain first; concurrent chains never share a thread, nor do spans that overlap."""
    keys: dict[tuple[str, str, int], None] = {}
    layers = {}
    for chain in trace.chain_names(rank):
        rows = trace.rows(trace.number[int(trace.rank_class[rank]), chain])
        layers[chain] = _layers(nanoseconds(rows.start), nanoseconds(rows.end))
        for run, layer in np.unique(np.stack([rows.run, layers[chain]]), axis=1).T.tolist():
            keys |= dict.fromkeys((chain, label.stream, layer) for label in trace.runs[run].labels)
    place = {stream: k for k, stream in enumerate(STREAMS)}
    order = sorted(keys, key=lambda key: (place.get(key[1], len(place)), key[0] != COMPUTE, key))
    return Tracks({key: k for k, key in enumerate(order)}, layers)


def _layers(start: Ints, end: Ints) -> Ints:
    """The lowest layer for each interval (by start) in which the ones before are over.

    >>> _layers(np.array([0, 1, 2, 5]), np.array([4, 2, 5, 6])).tolist()
    [0, 1, 1, 0]
    """
    layers = np.zeros(len(start), np.int64)
    if (start[1:] < end[:-1]).any():
        over: list[int] = []  # when each layer is free again
        for k, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
            layer = next((n for n, until in enumerate(over) if until <= begins), len(over))
            over[layer : layer + 1] = [ends]
            layers[k] = layer
    return layers


def _names(trace: Trace, threads: Threads, rank: int, name: str, order: int) -> list[dict[str, Any]]:
    heads: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": order}},
    ]
    for (chain, stream, layer), thread in threads.items():
        title = track_title(trace, chain, stream, layer)
        heads += [
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": title}},
            {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": thread, "args": {"sort_index": thread}},
        ]
    return heads


def track_title(trace: Trace, chain: str, stream: str, layer: int) -> str:
    """What a thread is called: its stream, and what the chain is beside it."""
    described = "compute waits" if chain == COMPUTE else trace.title(chain)
    title = stream if chain == stream else f"{stream} ({described})"
    return title + (f", {layer + 1}" if layer else "")


def _chain(trace: Trace, rank: int, chain: str, tracks: Tracks, window: tuple[float, float]) -> Iterator[str]:
    """The spans of a chain, run by run: the text of a run is made once and filled in by numbers, a row at a time."""
    number = trace.number[int(trace.rank_class[rank]), chain]
    rows, layers = trace.rows(number), tracks.layers[chain]
    late = rows.start > rows.posted
    shown = np.flatnonzero((rows.start >= window[0]) & (rows.start < window[1]))
    kinds, kind, count = np.unique(
        np.stack([rows.run, late, layers])[:, shown], axis=1, return_inverse=True, return_counts=True
    )
    order = shown[np.argsort(kind.ravel(), kind="stable")]
    numbers, wait = _numbers(trace, number, order), (rows.start[order] - rows.posted[order]) * 1e6
    row, span = 0, 0
    for (run, waited, layer), many in zip(kinds.T.tolist(), count.tolist(), strict=True):
        labels = trace.runs[run].labels
        text = _text(labels, rank, [tracks.threads[chain, label.stream, layer] for label in labels], waited=waited)
        filled = numbers[span : span + many * len(labels)].reshape(many, 3 * len(labels))
        yield from _fill(text, np.insert(filled, 3, wait[row : row + many], axis=1) if waited else filled)
        row, span = row + many, span + many * len(labels)


def _numbers(trace: Trace, number: int, rows: Ints) -> Floats:
    """Start, length (microseconds) and microbatch of each span of *rows*."""
    spans = trace.spans_of(number, rows)
    start, end = nanoseconds(spans.start), nanoseconds(spans.end)
    return np.stack([start / 1e3, (end - start) / 1e3, spans.microbatch], axis=1)


def _fill(text: str, numbers: Floats) -> Iterator[str]:
    few = max(1, 40000 // numbers.shape[1])
    for k in range(0, len(numbers), few):
        some = numbers[k : k + few]
        yield text * len(some) % tuple(some.ravel().tolist())


def _text(labels: Sequence[Label], rank: int, threads: Sequence[int], *, waited: bool) -> str:
    """The events of a run with room for numbers: start, length, microbatch; and for the first span how long it waited
    for its peers."""
    out = []
    for k, (label, thread) in enumerate(zip(labels, threads, strict=True)):
        name, kind = _quoted(label.name), _quoted(label.kind)
        wait = ',"waited_us":%.3f' if waited and k == 0 else ""
        out.append(
            f',\n{{"ph":"X","pid":{rank},"tid":{thread},"name":{name},"cat":{kind},"ts":%.3f,'
            f'"dur":%.3f,"args":{{"microbatch":%d,"layer":{label.layer}{wait}}}}}'
        )
    return "".join(out)


@lru_cache(maxsize=4096)
def _quoted(word: str) -> str:
    return json.dumps(word, ensure_ascii=False).replace("%", "%%")


def _arrows(
    analysis: StepAnalysis, shown: dict[int, int], tracks: dict[int, Tracks], window: tuple[float, float]
) -> Iterator[str]:
    """Flow events from a message to the pass that it let start, for ranks that are both shown."""
    lanes, number = analysis.lanes, 0
    for c, rank in shown.items():
        lane = lanes.compute[c]
        rows = np.flatnonzero((lane.cause >= 0) & (lane.start >= window[0]) & (lane.start < window[1]))
        chain = lanes.chain_of[lane.cause[rows]]
        for k in np.unique(chain).tolist():
            source = lanes.all[k]
            if not source.is_messages or source.owner not in shown:
                continue
            peer, woken = shown[source.owner], rows[chain == k]
            message = lane.cause[woken] - lanes.offset[k]
            stream = lanes.trace.runs[int(source.run[message[0]])].labels[0].stream
            layers = tracks[peer].layers[source.name][message].tolist()
            tails = [tracks[peer].threads[source.name, stream, layer] for layer in layers]
            sent, start = (nanoseconds(of) / 1e3 for of in (source.start[message], lane.start[woken]))
            for tail, at, to in zip(tails, sent.tolist(), start.tolist(), strict=True):
                number += 1
                yield (
                    f',\n{{"ph":"s","id":{number},"name":"message","cat":"pp","pid":{peer},"tid":{tail},"ts":{at:.3f}}}'
                    f',\n{{"ph":"f","bp":"e","id":{number},"name":"message","cat":"pp","pid":{rank},"tid":0,"ts":{to:.3f}}}'
                )
