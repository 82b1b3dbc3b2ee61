"""The step as a Chrome trace: loads in Perfetto (ui.perfetto.dev) and chrome://tracing.

Format: "Trace Event Format" of the Chromium project; complete events (``ph: X``), times in microseconds. A process per
rank, a thread per chain and stream; arrows from a message's sender to the pass that waited for it.
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

from trainsim.contracts.trace import Floats, Ints, Label, RowTimes, Run, Trace
from trainsim.report.windows import few_of
from trainsim.units import format_time

if TYPE_CHECKING:
    from trainsim.result.result import Result

MOST_EVENTS = 250_000
"""Events of a trace that nobody asked for by ranks: about 33 MB before compression."""
STREAMS = ("compute", "tp", "cp", "ep", "pp", "dp", "offload")
"""Threads in this order; other streams follow."""
Threads = dict[tuple[str, str], int]
"""(chain, stream) -> thread."""


class Excerpt(NamedTuple):
    """What of a step is written: ranks, and a window (seconds) that rows of the trace begin in; *words* say so if that
    is not all of a pipeline."""

    ranks: tuple[int, ...]
    window: tuple[float, float]
    words: str = ""


def excerpt(result: Result, events: int | None = None) -> Excerpt:
    """A pipeline, or where it has more than so many *events* (None: MOST_EVENTS) a few of its stages, or
    three, or as much of their time as fits."""
    events = MOST_EVENTS if events is None else events
    size = {rank: _spans(result.trace, rank) for rank in result.pipeline}
    if sum(size.values()) <= events:
        return Excerpt(result.pipeline, (0.0, np.inf))
    few = few_of(result)
    ranks = (
        few
        if sum(size[rank] for rank in few) <= events
        else tuple(dict.fromkeys((few[0], few[len(few) // 2], few[-1])))
    )
    part = min(1.0, events / sum(size[rank] for rank in ranks))
    end = result.duration * part if part < 1 else np.inf
    words = f"ranks {', '.join(map(str, ranks))}" + (f" and the first {format_time(end)}" if part < 1 else "")
    return Excerpt(ranks, (0.0, end), words)


def _spans(trace: Trace, rank: int) -> int:
    """How many spans all chains of a rank have."""
    size = np.array([len(run.labels) for run in trace.runs])
    numbers = [trace.number[int(trace.rank_class[rank]), chain] for chain in trace.chain_names(rank)]
    return sum(int(size[trace.row_times(number).run].sum()) for number in numbers)


def write_chrome(result: Result, ranks: Sequence[int] | None, path: Path) -> Path:
    """Write every span of *ranks*, or an excerpt that is not too large, to *path*; gzipped if the name ends in ``.gz``,
    quickly and beside the formatting."""
    part = excerpt(result) if ranks is None else Excerpt(tuple(ranks), (0.0, np.inf))
    parts = _batches(_document(result, part))
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


def _document(result: Result, part: Excerpt) -> Iterator[str]:
    trace, lanes, ranks = result.trace, result.lanes, part.ranks
    about = {"name": result.name, "step_time_s": result.step_time, "mfu": result.mfu, "bubble": result.bubble.fraction}
    about |= {"excerpt": part.words} if part.words else {}
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'
    threads = {rank: _threads(trace, rank) for rank in ranks}
    heads = []
    for order, rank in enumerate(ranks):
        stage = int(lanes.stage[trace.rank_class[rank]])
        heads += _names(trace, threads[rank], rank, f"stage {stage} · rank {rank}", order)
    yield ",\n".join(json.dumps(head, ensure_ascii=False) for head in heads)
    for rank in ranks:
        for chain in trace.chain_names(rank):
            yield from _chain(trace, rank, chain, threads[rank], part.window)
    yield from _arrows(result, {int(trace.rank_class[rank]): rank for rank in ranks}, threads, part.window)
    yield "\n]}\n"


def _threads(trace: Trace, rank: int) -> Threads:
    """(chain, stream) -> thread: streams of the compute chain first; concurrent chains never share a thread."""
    pairs: dict[tuple[str, str], None] = {}
    for chain in trace.chain_names(rank):
        run = trace.row_times(trace.number[int(trace.rank_class[rank]), chain]).run
        labels = (label for k in np.unique(run).tolist() for label in trace.runs[k].labels)
        pairs |= dict.fromkeys((chain, label.stream) for label in labels)
    place = {stream: k for k, stream in enumerate(STREAMS)}
    order = sorted(pairs, key=lambda pair: (place.get(pair[1], len(place)), pair[0] != "compute", pair))
    return {pair: k for k, pair in enumerate(order)}


def _names(trace: Trace, threads: Threads, rank: int, name: str, order: int) -> list[dict[str, Any]]:
    heads: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": order}},
    ]
    for (chain, stream), thread in threads.items():
        title = stream if chain == stream else f"{stream} ({_described(trace, chain)})"
        heads += [
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": title}},
            {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": thread, "args": {"sort_index": thread}},
        ]
    return heads


def _described(trace: Trace, chain: str) -> str:
    """What a chain is beside the stream of its spans."""
    return "compute waits" if chain == "compute" else trace.title(chain)


def _chain(trace: Trace, rank: int, chain: str, threads: Threads, window: tuple[float, float]) -> Iterator[str]:
    """The spans of a chain, run by run: the text of a run is made once and filled in by numbers, a row at a time."""
    number = trace.number[int(trace.rank_class[rank]), chain]
    rows, marks = trace.row_times(number), trace.rows[number].marks
    marked = np.zeros(len(rows.run), bool)
    marked[list(marks)] = True
    late = rows.start > rows.posted
    shown = (rows.start >= window[0]) & (rows.start < window[1])
    kind = rows.run * 2 + late
    for one in np.unique(kind[~marked & shown]).tolist():
        run = trace.runs[one // 2]
        text = _text(run.labels, rank, threads, chain, lengths=_lengths(run), waited=bool(one % 2))
        yield from _fill(
            text, _numbers(run, rows, np.flatnonzero((kind == one) & ~marked & shown), waited=bool(one % 2))
        )
    for number in np.unique(rows.run[marked & shown]).tolist():
        which = np.flatnonzero(marked & shown & (rows.run == number))
        text = _text(trace.runs[number].labels, rank, threads, chain)
        yield from _fill(text, _marked(rows, which, np.array([marks[row] for row in which.tolist()])))


def _marked(rows: RowTimes, which: Ints, ends: Floats) -> Floats:
    """Per row (start, length, microbatch) of each span, for rows whose spans end at *ends*."""
    starts = np.concatenate([rows.start[which, None], ends[:, :-1]], axis=1)
    microbatch = np.broadcast_to(rows.microbatch[which, None], ends.shape)
    return np.stack([starts * 1e6, (ends - starts) * 1e6, microbatch], axis=2).reshape(len(which), -1)


def _lengths(run: Run) -> list[float]:
    return [(b - a) * 1e6 for a, b in zip(run.starts, run.ends, strict=True)]


def _numbers(run: Run, rows: RowTimes, which: Ints, *, waited: bool) -> Floats:
    """Per row what its text has room for: start and microbatch of each span, and after the first how long it waited."""
    out = np.empty((len(which), 2 * len(run.labels)))
    out[:, ::2] = (rows.start[which, None] + np.array(run.starts)) * 1e6
    out[:, 1::2] = rows.microbatch[which, None]
    return np.insert(out, 2, (rows.start[which] - rows.posted[which]) * 1e6, axis=1) if waited else out


def _fill(text: str, numbers: Floats) -> Iterator[str]:
    few = max(1, 40000 // numbers.shape[1])
    for k in range(0, len(numbers), few):
        some = numbers[k : k + few]
        yield text * len(some) % tuple(some.ravel().tolist())


def _text(
    labels: Sequence[Label],
    rank: int,
    threads: Threads,
    chain: str,
    *,
    lengths: Sequence[float] = (),
    waited: bool = False,
) -> str:
    """The events of a run with room for numbers: start, length where *lengths* does not give it, microbatch; and for
    the first span how long it waited for its peers."""
    out = []
    for k, label in enumerate(labels):
        name, kind = _quoted(label.name), _quoted(label.kind)
        length = f"{lengths[k]:.3f}" if lengths else "%.3f"
        wait = ',"waited_us":%.3f' if waited and k == 0 else ""
        out.append(
            f',\n{{"ph":"X","pid":{rank},"tid":{threads[chain, label.stream]},"name":{name},"cat":{kind},"ts":%.3f,'
            f'"dur":{length},"args":{{"microbatch":%d,"layer":{label.layer}{wait}}}}}'
        )
    return "".join(out)


@lru_cache(maxsize=4096)
def _quoted(word: str) -> str:
    return json.dumps(word, ensure_ascii=False).replace("%", "%%")


def _arrows(
    result: Result, shown: dict[int, int], threads: dict[int, Threads], window: tuple[float, float]
) -> Iterator[str]:
    """Flow events from a message to the pass that it let start, for ranks that are both shown."""
    lanes, number = result.lanes, 0
    for c, rank in shown.items():
        lane = lanes.compute[c]
        rows = np.flatnonzero((lane.cause >= 0) & (lane.start >= window[0]) & (lane.start < window[1]))
        chain = lanes.chain_of[lane.cause[rows]]
        for k in np.unique(chain).tolist():
            source = lanes.all[k]
            if not source.is_messages or source.owner not in shown:
                continue
            peer, mine = shown[source.owner], rows[chain == k]
            tail = next(thread for (name, _), thread in threads[peer].items() if name == source.name)
            place = (
                f'"name":"message","cat":"pp","pid":{peer},"tid":{tail}',
                f'"name":"message","cat":"pp","pid":{rank},"tid":0',
            )
            sent = (source.start[lane.cause[mine] - lanes.offset[k]] * 1e6).tolist()
            for at, to in zip(sent, (lane.start[mine] * 1e6).tolist(), strict=True):
                number += 1
                yield (
                    f',\n{{"ph":"s","id":{number},{place[0]},"ts":{at:.3f}}}'
                    f',\n{{"ph":"f","bp":"e","id":{number},{place[1]},"ts":{to:.3f}}}'
                )
