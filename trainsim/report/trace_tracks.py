"""The threads of a trace: CUDA streams of a GPU and threads of its host, so that nothing on one overlaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from trainsim.contracts.record import COMPUTE, Label
from trainsim.contracts.trace import Floats, Ints, Trace

STREAMS = ("compute", "tp", "cp", "ep", "pp", "dp", "offload")
"""Streams in this order; others follow."""
COMPUTE_STREAM, FIRST_STREAM, NEXT_STREAM = 7, 20, 4
"""Numbers of CUDA streams, as PyTorch usually gets them: of kernels, and of the streams that come after."""
MAIN, LAUNCHES, FIRST_HELPER = 1, 2, 10_001
"""Threads of the host: of the training loop, of launches, and of what it does beside (an optimizer, drives)."""


class StreamLayer(NamedTuple):
    """What lies on one thread: spans of a *chain* of this program under one *stream*. Spans that overlap lie in
    different *layers*; what a host does lies apart from its GPU."""

    chain: str
    stream: str
    layer: int
    on_gpu: bool


class Tracks(NamedTuple):
    """The threads of a rank, and in which layer each row of each of its chains lies."""

    threads: Mapping[StreamLayer, int]
    layers: dict[str, Ints]


def on_grid(nanoseconds: Ints) -> Ints:
    """*nanoseconds* that a reader gets as they are. Perfetto multiplies microseconds by 1,000 in float64 and cuts off
    what is behind the point, which turns 0.6 % of all nanoseconds into the one before: those are left out."""
    grid = nanoseconds.copy()
    while (lost := (grid / 1e3 * 1e3).astype(np.int64) != grid).any():
        grid[lost] += 1
    return grid


def nanoseconds(seconds: Floats, ahead: int = 0) -> Ints:
    """Times on the grid of the file, which begins *ahead* nanoseconds before the step.

    >>> nanoseconds(np.array([1e-9, 0.0010000000003])).tolist()
    [1, 1000000]
    """
    return on_grid(np.round(seconds * 1e9).astype(np.int64) + ahead)


def _anything(label: Label) -> bool:
    return True


def tracks_of(trace: Trace, rank: int, on_gpu: Callable[[Label], bool] = _anything) -> Tracks:
    """Streams of the compute chain first; concurrent chains never share a thread, nor do spans that overlap, nor those
    that are *on_gpu* and others."""
    keys: dict[StreamLayer, None] = {}
    layers = {}
    for chain in trace.chain_names(rank):
        rows = trace.rows(trace.number[int(trace.rank_class[rank]), chain])
        layers[chain] = layers_of(nanoseconds(rows.posted), nanoseconds(rows.end))
        for run, layer in np.unique(np.stack([rows.run, layers[chain]]), axis=1).T.tolist():
            labels = dict.fromkeys((label.stream, on_gpu(label)) for label in trace.runs[run].labels)
            keys |= dict.fromkeys(StreamLayer(chain, stream, layer, gpu) for stream, gpu in labels)
    place = {stream: k for k, stream in enumerate(STREAMS)}
    order = sorted(keys, key=lambda key: (place.get(key.stream, len(place)), key.chain != COMPUTE, key))
    return Tracks(_numbered(order), layers)


def _numbered(order: list[StreamLayer]) -> dict[StreamLayer, int]:
    """Kernels of the compute chain have the first stream, its host time has the thread of the training loop."""
    threads, stream, helper = {}, FIRST_STREAM, FIRST_HELPER
    for track in order:
        usual = track.chain == COMPUTE and track.stream == STREAMS[0] and not track.layer
        if usual:
            threads[track] = COMPUTE_STREAM if track.on_gpu else MAIN
        elif track.on_gpu:
            threads[track], stream = stream, stream + NEXT_STREAM
        else:
            threads[track], helper = helper, helper + 1
    return threads


def layers_of(start: Ints, end: Ints) -> Ints:
    """The lowest layer for each interval (by start) in which the ones before are over.

    >>> layers_of(np.array([0, 1, 2, 5]), np.array([4, 2, 5, 6])).tolist()
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


def thread_names(trace: Trace, threads: Mapping[StreamLayer, int]) -> dict[int, tuple[str, bool]]:
    """(Title, whether it is a stream of the GPU) of each thread, in the order in which they are shown."""
    titles = {}
    for track, thread in threads.items():
        title = track_title(trace, *track[:3]) if thread != MAIN else "training loop"
        titles[thread] = f"stream {thread} {title}" if track.on_gpu else f"host {title}", track.on_gpu
    return titles


def track_title(trace: Trace, chain: str, stream: str, layer: int) -> str:
    """What a thread is called: its stream, and what the chain is beside it."""
    described = "compute waits" if chain == COMPUTE else trace.title(chain)
    title = stream if chain == stream else f"{stream} ({described})"
    return title + (f", {layer + 1}" if layer else "")


def heads(pid: int, name: str, label: str, order: int, titles: Mapping[int, str]) -> list[dict[str, Any]]:
    """The events that name a process and its threads, and say in which order they are shown."""
    about = {
        "process_name": {"name": name},
        "process_labels": {"labels": label},
        "process_sort_index": {"sort_index": order},
    }
    out: list[dict[str, Any]] = [
        {"ph": "M", "name": key, "pid": pid, "tid": 0, "args": args} for key, args in about.items()
    ]
    for k, (thread, title) in enumerate(titles.items()):
        for key, args in (("thread_name", {"name": title}), ("thread_sort_index", {"sort_index": k})):
            out.append({"ph": "M", "name": key, "pid": pid, "tid": thread, "args": args})
    return out
