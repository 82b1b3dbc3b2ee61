"""Parts of a step that are asked for in words: two times, a pass (``F4``), or a layer of one (``F4/12``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.errors import InvalidPlan
from trainsim.report.drawn_ranks import DrawnRank, drawn_ranks, spans_within
from trainsim.units import BadQuantity, parse_time

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis

PASS = re.compile(r"(?P<work>[FBIW])(?P<microbatch>\d{1,9})(?:\.(?P<chunk>\d{1,4}))?(?:/(?P<layer>\d{1,6}))?", re.ASCII)
AROUND = 0.04
"""Part of a pass or layer that is shown before and after it."""
FORMS = "1.2s-1.3s (times), F4 or B3.1 (a pass: microbatch 3, chunk 1) or F4/12 (layer 12 of it) would work"


class NamedWindow(NamedTuple):
    """Ranks to draw (None: the usual ones), start and end (seconds)."""

    ranks: tuple[int, ...] | None
    start: float
    end: float


def named_window(result: StepAnalysis, text: str) -> NamedWindow:
    """The part of a step that *text* names. Raises InvalidPlan for words that name nothing in it."""
    if (found := PASS.fullmatch(text.strip())) is not None:
        return _of_pass(result, text, found)
    first, _, last = text.partition("-")
    try:
        return NamedWindow(None, parse_time(first.strip()), parse_time(last.strip()))
    except BadQuantity:
        raise InvalidPlan(f"window {text!r} is not a part of a step; {FORMS}") from None


def _of_pass(result: StepAnalysis, text: str, found: re.Match[str]) -> NamedWindow:
    anywhere = found["layer"] is not None and found["chunk"] is None  # a layer is on one chunk
    chunk = int(found["chunk"] or 0)
    for actor in drawn_ranks(result, result.pipeline):
        passes = actor.passes
        of = (passes.microbatch == int(found["microbatch"])) & (anywhere | (passes.chunk == chunk))
        for k in np.flatnonzero(of & (np.array(passes.work, object) == found["work"])).tolist():
            start, end = float(passes.start[k]), float(passes.end[k])
            if found["layer"] is not None:
                start, end = _of_layer(actor, (start, end), int(found["microbatch"]), int(found["layer"]))
            if start < end:
                margin = AROUND * (end - start)
                return NamedWindow((actor.rank,), max(0.0, start - margin), end + margin)
    raise InvalidPlan(f"window {text!r}: no rank of the pipeline has it; {FORMS}")


def _of_layer(actor: DrawnRank, window: tuple[float, float], microbatch: int, layer: int) -> tuple[float, float]:
    """When the kernels of a layer run for a microbatch: an empty time if they do not."""
    lanes = actor.lanes
    spans = spans_within(lanes, actor.lane.number, window)
    of_layer = np.array([label.layer == layer for label in lanes.trace.labels], bool)
    inside = (spans.start >= window[0]) & (spans.end <= window[1]) & (spans.end > spans.start)
    its = inside & of_layer[spans.label] & (spans.microbatch == microbatch)
    return (float(spans.start[its].min()), float(spans.end[its].max())) if its.any() else (0.0, 0.0)
