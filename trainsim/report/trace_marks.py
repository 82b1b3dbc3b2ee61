"""Steps, passes, memory and messages of a rank as events of a trace, beside its kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from trainsim.analysis.lanes import Lanes
from trainsim.analysis.memory import StageMemory
from trainsim.contracts.record import COMPUTE
from trainsim.contracts.trace import Ints
from trainsim.report.trace_kernels import Kernels
from trainsim.report.trace_spans import fill
from trainsim.report.trace_tracks import COMPUTE_STREAM, MAIN, StreamLayer, Tracks, nanoseconds

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis

PASSES = {"F": "forward", "B": "backward", "I": "input gradients", "W": "weight gradients"}
"""What passes of a schedule are called; other work by its own name."""
Window = tuple[float, float]


def step_begins(lanes: Lanes, rank: int, ahead: int = 0) -> Ints:
    """When each step of a rank begins, nanoseconds of the file: with the first, or when the one before has ended."""
    rank_class = int(lanes.trace.rank_class[rank])
    _, ended = lanes.trace.task_times(lanes.trace.number[rank_class, COMPUTE])
    ends = ended[lanes.updates[rank_class]][:-1]
    return nanoseconds(np.append(0.0, ends)[: lanes.steps], ahead)


def steps(begins: Ints, end: int, pid: int) -> Iterator[str]:
    """``ProfilerStep`` of each step on the thread of the training loop, from *begins* to *end* (nanoseconds)."""
    for k, (begin, over) in enumerate(zip(begins.tolist(), [*begins[1:].tolist(), end], strict=True)):
        yield (
            f',\n{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{k}","pid":{pid},"tid":{MAIN},'
            f'"ts":{begin / 1e3:.3f},"dur":{(over - begin) / 1e3:.3f},"args":{{}}}}'
        )


def passes(lanes: Lanes, rank: int, pid: int, *, window: Window = (0.0, np.inf), ahead: int = 0) -> Iterator[str]:
    """Every pass of a rank that begins in *window* (seconds), above its kernels."""
    trace = lanes.trace
    number = trace.number[int(trace.rank_class[rank]), COMPUTE]
    begin, end = trace.task_times(number)
    tasks = trace.tasks[number]
    shown = np.flatnonzero((end > begin) & (begin >= window[0]) & (begin < window[1]))
    start, over = nanoseconds(begin[shown], ahead), nanoseconds(end[shown], ahead)
    of_tasks = zip(tasks.facts[shown].tolist(), tasks.microbatch[shown].tolist(), strict=True)
    for at, until, (fact, microbatch) in zip(start.tolist(), over.tolist(), of_tasks, strict=True):
        work, chunk = trace.facts[fact].work, trace.facts[fact].chunk
        name = PASSES.get(work, work) + (f" {microbatch}" if work in PASSES else "")
        yield (
            f',\n{{"ph":"X","cat":"gpu_user_annotation","name":{json.dumps(name)},"pid":{pid},"tid":{COMPUTE_STREAM},'
            f'"ts":{at / 1e3:.3f},"dur":{(until - at) / 1e3:.3f},'
            f'"args":{{"work":{json.dumps(work)},"chunk":{chunk},"microbatch":{microbatch}}}}}'
        )


def memory(held: StageMemory, pid: int, *, device: int, ahead: int) -> Iterator[str]:
    """What a rank's allocator holds whenever that changes: given out (without what CUDA itself takes), and reserved."""
    at = nanoseconds(held.times, ahead)
    nothing = np.zeros(len(at))
    reserved = np.round(held.top - held.levels.get("framework", nothing)).astype(np.int64)
    allocated = reserved - np.round(held.levels.get("slack", nothing)).astype(np.int64)
    change = np.diff(allocated, prepend=0)
    kept = np.flatnonzero((change != 0) | (np.arange(len(at)) == 0))
    text = (
        f',\n{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":{pid},"tid":{MAIN},"ts":%.3f,"args":'
        f'{{"Bytes":%d,"Total Allocated":%d,"Total Reserved":%d,"Device Type":1,"Device Id":{device}}}}}'
    )
    yield from fill(text, np.stack([at / 1e3, change, allocated, reserved], axis=1)[kept])


def arrows(analysis: StepAnalysis, kernels: Kernels, tracks: Mapping[int, Tracks], window: Window) -> Iterator[str]:
    """Flow events from a message to the pass that it let start, for ranks that are both shown."""
    lanes, number = analysis.lanes, 0
    shown = {int(analysis.trace.rank_class[rank]): rank for rank in tracks}
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
            label = lanes.trace.runs[int(source.run[message[0]])].labels[0]
            layers = tracks[peer].layers[source.name][message].tolist()
            tails = [
                tracks[peer].threads[StreamLayer(source.name, label.stream, layer, kernels.on_gpu(label))]
                for layer in layers
            ]
            sent, start = (nanoseconds(of) / 1e3 for of in (source.start[message], lane.start[woken]))
            for tail, at, to in zip(tails, sent.tolist(), start.tolist(), strict=True):
                number += 1
                yield (
                    f',\n{{"ph":"s","id":{number},"name":"message","cat":"pp","pid":{peer},"tid":{tail},"ts":{at:.3f}}}'
                    f',\n{{"ph":"f","bp":"e","id":{number},"name":"message","cat":"pp","pid":{rank},'
                    f'"tid":{COMPUTE_STREAM},"ts":{to:.3f}}}'
                )
