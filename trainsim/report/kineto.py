"""
The step as the PyTorch profiler would have written it: a file per rank, with launches, streams, groups and memory.

The form that HolisticTraceAnalysis and other tools for traces of Kineto read. Kernels, copies and collectives are those
of the simulation, and a collective runs from when its rank posted it, as a kernel of NCCL does. What a host does is not
simulated kernel by kernel: its launches are laid around the kernels (``report/trace_launches.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainsim.analysis.memory import StageMemory, held_by
from trainsim.contracts.record import Label
from trainsim.contracts.trace import Bools, Ints, Trace
from trainsim.errors import InvalidPlan
from trainsim.report.chrome import excerpt, known, span_count
from trainsim.report.trace_file import quoted, write
from trainsim.report.trace_head import device_of, head, numbers_of
from trainsim.report.trace_kernels import COPY, HOST, ON_HOST, JobKernels, Kernels
from trainsim.report.trace_launches import LaunchTimes, OnStreams, launch_events, launches
from trainsim.report.trace_marks import memory, passes, step_begins, steps
from trainsim.report.trace_spans import (
    BEGIN,
    LENGTH,
    MICROBATCH,
    NUMBER,
    WAITED,
    ChainSpans,
    SpanText,
)
from trainsim.report.trace_tracks import (
    COMPUTE_STREAM,
    LAUNCHES,
    MAIN,
    StreamLayer,
    Tracks,
    heads,
    nanoseconds,
    thread_names,
    tracks_of,
)
from trainsim.units import format_bytes

if TYPE_CHECKING:
    from trainsim.analysis.analysis import Analysis

AHEAD = 1_000_000
"""Nanoseconds of a file before its step, in which the first kernels are launched."""
HOST_PROCESS = 1000
"""The process of a rank's host is its number and this: the numbers before are those of GPUs."""
FIRST_CORRELATION = 100_000
"""The number of the first launch: a process has launched much before it is profiled, and readers that make columns as
narrow as these numbers keep those of events in them."""
MOST_SPANS = 4_000_000
"""Kernels, copies and collectives of all files together, of which more are not written."""
BYTES_PER_SPAN = 60.0
"""What one takes on the disk, packed (``python -m benchmarks.traces``)."""
UNPACKED = 15
"""How many times as large a file is unpacked."""


def write_kineto(analysis: Analysis, ranks: Sequence[int] | None, directory: Path) -> tuple[Path, ...]:
    """Write ``rank-0.json.gz`` and so on into *directory* and return their paths: of *ranks*, or of a pipeline's ranks
    (of a large one, of a few of its stages). Raises InvalidPlan for more than a disk should be asked to hold."""
    chosen = tuple(excerpt(analysis).ranks if ranks is None else ranks)
    _check_size(analysis, chosen)
    directory.mkdir(parents=True, exist_ok=True)
    kernels, paths = JobKernels(analysis), []
    for rank, held in zip(chosen, held_by(analysis.lanes, chosen), strict=True):
        paths.append(write(_document(analysis, kernels, rank, held), directory / f"rank-{rank}.json.gz"))
    return tuple(paths)


def _check_size(analysis: Analysis, ranks: Sequence[int]) -> None:
    of_class = {int(c): span_count(analysis.trace, int(r)) for c, r in enumerate(analysis.trace.representative)}
    spans = sum(of_class[int(analysis.trace.rank_class[rank])] for rank in ranks)
    if spans > MOST_SPANS:
        some = ",".join(map(str, analysis.pipeline[:3]))
        raise InvalidPlan(
            f"traces of {len(ranks)} ranks would hold {spans:,} kernels and collectives, about "
            f"{format_bytes(spans * BYTES_PER_SPAN)} on the disk and {UNPACKED} times that unpacked; up to "
            f"{MOST_SPANS:,} are written: choose some ranks (ranks {some}; those of a stage do the same), "
            "fewer microbatches, or simulation.detail: block"
        )


def _document(analysis: Analysis, kernels: Kernels, rank: int, held: StageMemory) -> Iterator[str]:
    """The file of one rank: the GPU is a process with the number that it has in its node, the host another."""
    trace, host, device = analysis.trace, HOST_PROCESS + rank, device_of(analysis, rank)
    tracks = tracks_of(trace, rank, kernels.on_gpu)
    stage = int(trace.stage[trace.rank_class[rank]])
    about = numbers_of(analysis) | {"rank": rank, "stage": stage, "step_begins_us": AHEAD / 1e3}
    yield from head(analysis, kernels, (rank,), about=about)
    yield ",\n".join(json.dumps(event, ensure_ascii=False) for event in _heads(trace, tracks, rank, device))
    on_streams = []
    piece_of, first = partial(_piece, kernels, rank, device), FIRST_CORRELATION
    begins = step_begins(analysis.lanes, rank, AHEAD)
    for chain in trace.chain_names(rank):
        spans = ChainSpans.of(trace, rank, chain, tracks, ahead=AHEAD, first=first)
        first += len(spans.begin)
        yield from spans.written(trace, tracks, piece_of, kernels.on_gpu)
        on_streams.append(_on_streams(trace, tracks, spans, kernels, begins))
    every = OnStreams(*(np.concatenate(column) for column in zip(*on_streams, strict=True)))
    times = launches(every, max(1, round(analysis.job.framework.host.seconds_per_operation * 1e9)))
    yield from launch_events(every, times, host)
    yield from passes(analysis.lanes, rank, device, ahead=AHEAD)
    end = int(nanoseconds(np.array([analysis.duration]), AHEAD)[0])
    yield from steps(_host_begins(every, times, len(begins)), end, host)
    yield from memory(held, host, device=device, ahead=AHEAD)
    yield "\n]}\n"


def _heads(trace: Trace, tracks: Tracks, rank: int, device: int) -> Iterator[dict[str, object]]:
    titles = thread_names(trace, tracks.threads)
    threads = {MAIN: "host training loop", LAUNCHES: "host launches"}
    threads |= {thread: title for thread, (title, on_gpu) in titles.items() if not on_gpu}
    yield from heads(HOST_PROCESS + rank, "python", "CPU", 0, threads)
    streams = {thread: title for thread, (title, on_gpu) in titles.items() if on_gpu}
    stage = int(trace.stage[trace.rank_class[rank]])
    yield from heads(device, f"stage {stage} · rank {rank}", f"GPU {device}", 1, streams)


def _piece(kernels: Kernels, rank: int, device: int, label: Label, thread: int) -> SpanText:
    """The event of a label's spans on a thread, and where the arrow of its launch ends."""
    shown = kernels.shown(label)
    start = f',\n{{"ph":"X","cat":"{shown.category}","name":{quoted(shown.name)},"pid":'
    about = f"{known(label)}{kernels.recorded(label, rank)}}}}}"
    if shown.category == HOST:
        text = f'{start}{HOST_PROCESS + rank},"tid":{thread},"ts":%.3f,"dur":%.3f,"args":{{{about}'
        return SpanText(text, (BEGIN, LENGTH, MICROBATCH))
    waits, waited = (',"waited_us":%.3f', (WAITED,)) if shown.operation else ("", ())
    text = (
        f'{start}{device},"tid":{thread},"ts":%.3f,"dur":%.3f,"args":{{"External id":%d,"correlation":%d,"device":'
        f'{device},"context":1,"stream":{thread}{waits},{about}'
        f',\n{{"ph":"f","id":%d,"cat":"ac2g","name":"ac2g","pid":{device},"tid":{thread},"ts":%.3f,"bp":"e"}}'
    )
    return SpanText(text, (BEGIN, LENGTH, NUMBER, NUMBER, *waited, MICROBATCH, NUMBER, BEGIN))


def _on_streams(
    trace: Trace,
    tracks: Tracks,
    spans: ChainSpans,
    kernels: Kernels,
    step_begin: Ints,
) -> OnStreams:
    """What a chain puts on streams; spans of the host are when it kept that waiting."""
    threads, copies, hosts = [], [], []
    for labels, layer, rows in spans.labels(trace):
        shown = [kernels.shown(label) for label in labels]
        keys = [
            StreamLayer(spans.chain, label.stream, layer, of.on_gpu) for label, of in zip(labels, shown, strict=True)
        ]
        threads.append(np.tile([tracks.threads[key] if key.on_gpu else -1 for key in keys], rows))
        copies.append(np.tile([of.category == COPY for of in shown], rows))
        hosts.append(np.tile([label.kind in ON_HOST for label in labels], rows))
    thread, copy, host = (np.concatenate([np.zeros(0, np.int64), *of]) for of in (threads, copies, hosts))
    gpu: Bools = thread >= 0
    waited = np.append(0, np.sort(spans.end[host.astype(bool)]))
    return OnStreams(
        begin=spans.begin[gpu],
        end=spans.end[gpu],
        thread=thread[gpu],
        number=spans.numbers[gpu, NUMBER].astype(np.int64),
        host=waited[np.searchsorted(waited, spans.begin[gpu], side="right") - 1],
        copies=copy[gpu].astype(bool),
        step=np.searchsorted(step_begin, spans.begin[gpu], side="right"),
    )


def _host_begins(every: OnStreams, times: LaunchTimes, count: int) -> Ints:
    """When the host begins each step: the first with the file, others with the launch of their first kernel."""
    begins = [0]
    for step in range(2, count + 1):
        own = times.begin[(every.step == step) & (every.thread == COMPUTE_STREAM)]
        begins.append(int(own.min(initial=np.iinfo(np.int64).max)) if len(own) else begins[-1])
    return np.array(begins, np.int64)
