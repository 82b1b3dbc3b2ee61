"""What a chain beside the passes did, by how it looks: gathers and reductions are told from each other."""

from __future__ import annotations

import numpy as np

from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Floats, Lane, Lanes
from trainsim.contracts.trace import Label

DATA = ("dp", "replicas", "gather")
"""Chains that carry parameters and gradients between replicas."""
Spans = dict[str, tuple[Floats, Floats]]
"""Look -> starts and ends in rising order."""


def look_of(label: Label) -> str:
    """How a span looks: its kind, but gathers of parameters look like themselves.

    >>> look_of(Label("gather unit 3", "dp", "dp", -1)), look_of(Label("reduce 0.1", "dp", "dp", -1))
    ('gather', 'dp')
    """
    return "gather" if label.kind == "dp" and label.name.startswith("gather") else label.kind


def spans_of(lanes: Lanes, lane: Lane) -> Spans:
    """The spans of a chain, without the time between them in which it waits; its copies look like what they are for."""
    trace = lanes.trace
    spans = trace.spans(int(trace.representative[lane.owner]), lane.name)
    looks = np.array([_look(label, lane.name) for label in trace.labels], object)[spans.label]
    order = np.argsort(spans.start, kind="stable")
    out: Spans = {}
    for look in dict.fromkeys(looks.tolist()):
        of = order[looks[order] == look]
        out[look] = spans.start[of], spans.end[of]
    return out


def _look(label: Label, chain: str) -> str:
    if chain in DATA and label.kind in ("dp", "other"):
        return "gather" if label.name.startswith("gather") else "dp"
    return label.kind if chain in DATA or chain not in COLUMN else chain


def joined(start: Floats, end: Floats, gap: float) -> tuple[Floats, Floats, Floats]:
    """Intervals in rising order, with those joined that are less than *gap* apart; and the share of each that was in
    the intervals.

    >>> start, end, share = joined(np.array([0.0, 1.5, 5.0]), np.array([1.0, 2.0, 6.0]), 0.6)
    >>> end.tolist(), share.tolist()
    ([2.0, 6.0], [0.75, 1.0])
    """
    if not len(start):
        return start, end, start
    apart = start[1:] - end[:-1] >= gap
    heads, tails = np.flatnonzero(np.append(True, apart)), np.flatnonzero(np.append(apart, True))
    inside = np.add.reduceat(end - start, heads)
    length = np.maximum(end[tails] - start[heads], 1e-300)
    return start[heads], end[tails], np.clip(inside / length, 0.0, 1.0)
