"""Traces of Kineto read by the simplest means: what HolisticTraceAnalysis makes of them, by arithmetic of intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

MARKS = ("user_annotation", "gpu_user_annotation", "cuda_runtime")
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
Intervals = list[tuple[int, int]]


def spans_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that are spans of a step, and not marks beside them."""
    return [e for e in document["traceEvents"] if e["ph"] == "X" and e["cat"] not in MARKS]


def on_gpu(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What streams carry out."""
    return [e for e in document["traceEvents"] if e["ph"] == "X" and e["cat"] in ON_GPU]


def times(event: dict[str, Any]) -> tuple[int, int]:
    """Start and end in nanoseconds, as Perfetto reads them: times 1,000, what is behind the point cut off."""
    start, length = int(event["ts"] * 1000.0), int(event["dur"] * 1000.0 + 1e-6)
    assert abs(event["ts"] * 1000.0 - start) < 0.01, "times are whole nanoseconds"
    return start, start + length


def assert_nested(document: dict[str, Any]) -> None:
    """No event of a thread crosses another; spans of a step do not even lie in each other."""
    threads: dict[tuple[Any, Any], list[tuple[int, int, bool]]] = {}
    for e in document["traceEvents"]:
        if e["ph"] == "X":
            start, end = times(e)
            threads.setdefault((e["pid"], e["tid"]), []).append((start, -end, e["cat"] not in MARKS))
    for some in threads.values():
        around: list[int] = []
        alone = 0
        for start, minus_end, span in sorted(some):
            end = -minus_end
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1], (start, end, around)
            around.append(end)
            if span:
                assert start >= alone
                alone = end


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """*intervals* merged where they touch or overlap."""
    out: Intervals = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((start, end))
    return out


def length(intervals: Intervals) -> int:
    """How long disjoint *intervals* are together."""
    return sum(end - start for start, end in intervals)


def common(one: Intervals, other: Intervals) -> int:
    """How long both of two unions go on at once."""
    return length(one) + length(other) - length(union([*one, *other]))


def kind_of(name: str) -> str:
    """What a kernel is by its name, as HolisticTraceAnalysis has it."""
    if re.match("^nccl.*Kernel", name):
        return "communication"
    return "memory" if re.match("^Memcpy|^Memset|^dma", name) else "other" if "Sync" in name else "computation"


def temporal_breakdown(document: dict[str, Any]) -> dict[str, float]:
    """Nanoseconds from the first kernel to the last: idle, computing, and all else; and the part of communication that
    computation hides."""
    kinds: dict[str, Intervals] = {}
    for e in on_gpu(document):
        kinds.setdefault(kind_of(e["name"]), []).append(times(e))
    merged = {kind: union(some) for kind, some in kinds.items()}
    everything = union([interval for some in kinds.values() for interval in some])
    total = everything[-1][1] - everything[0][0]
    computing = length(merged.get("computation", []))
    sent = merged.get("communication", [])
    return {
        "idle": total - length(everything),
        "compute": computing,
        "non_compute": length(everything) - computing,
        "total": total,
        "hidden": common(sent, merged.get("computation", [])) / length(sent) if sent else 0.0,
    }


def idle_breakdown(document: dict[str, Any]) -> dict[tuple[int, str], int]:
    """Nanoseconds between the kernels of each stream: waiting for the host, where the next was launched after the one
    before was over, or for others."""
    launched = {
        e["args"]["correlation"]: times(e)[0] for e in document["traceEvents"] if e.get("cat") == "cuda_runtime"
    }
    streams: dict[int, list[tuple[int, int, int]]] = {}
    for e in on_gpu(document):
        streams.setdefault(e["tid"], []).append((*times(e), launched[e["args"]["correlation"]]))
    out: dict[tuple[int, str], int] = {}
    for stream, some in streams.items():
        some.sort()
        for before, (start, _, launch) in pairwise(some):
            why = "host_wait" if launch > before[1] else "other"
            out[stream, why] = out.get((stream, why), 0) + start - before[1]
    return out
