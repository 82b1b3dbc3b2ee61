"""Spans of a measured step in nanoseconds, on their way into a trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Payload
from trainsim.contracts.measured import from_spans
from trainsim.contracts.record import COMPUTE
from trainsim.contracts.trace import Trace
from trainsim.measured.trace_events import NANOSECOND


class MeasuredSpan(NamedTuple):
    """One span: what ``from_spans`` takes, with times in whole nanoseconds, so that equal ones stay equal."""

    rank: int
    chain: str
    name: str
    kind: str
    stream: str
    posted_ns: int
    begin_ns: int
    end_ns: int
    work: str = ""
    microbatch: int = -1
    layer: int = -1
    chunk: int = 0
    payloads: tuple[Payload, ...] = ()


def trace_of_spans(
    spans: Sequence[MeasuredSpan], *, stages: Sequence[int], messages: Mapping[str, Messages], observed: bool
) -> Trace:
    """The trace of *spans*. *observed*: on a machine, where what lets a span start ends a little earlier; in a
    simulation it ends at that very instant."""
    origin = min(span.posted_ns for span in spans)
    posted, begin, end = (
        [(time - origin) * NANOSECOND for time in times]
        for times in zip(*((span.posted_ns, span.begin_ns, span.end_ns) for span in spans), strict=True)
    )
    columns = {name: [getattr(span, name) for span in spans] for name in SAME}
    columns |= {"posted": posted, "start": begin, "end": end}
    if observed:
        columns["after"] = _followed(spans)
    if all(span.work for span in spans if span.chain == COMPUTE):
        columns["work"] = [span.work for span in spans]
    return from_spans(columns, stages=stages, messages=messages)


def _followed(spans: Sequence[MeasuredSpan]) -> list[int]:
    """Of spans beside the compute chain the last one of that chain that was over when they were posted: a machine
    starts what follows a little later."""
    ends: dict[int, list[tuple[int, int]]] = {}
    for k, span in enumerate(spans):
        if span.chain == COMPUTE:
            ends.setdefault(span.rank, []).append((span.end_ns, k))
    for own in ends.values():
        own.sort()
    out = []
    for span in spans:
        own = ends.get(span.rank, [])
        k = bisect_right(own, (span.posted_ns, len(spans))) - 1
        out.append(own[k][1] if k >= 0 and span.chain != COMPUTE else -1)
    return out


SAME = ("rank", "chain", "name", "kind", "stream", "microbatch", "layer", "chunk", "payloads")
"""Columns that are taken as they are."""
