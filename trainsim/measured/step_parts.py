"""Where a step goes, finely enough to say which constant of the model a difference comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainsim.analysis.breakdown import BUBBLE
from trainsim.analysis.kinds import COLUMN, COMMUNICATION
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.measured.kernel_categories import category_of

PHASES = ("forward", "backward", "recompute")
OTHERS = ("optimizer", "host", "copy", "delay", "other", *COMMUNICATION, "prefill", "decode", "scoring")
IDLE = "idle"


class StepPart(NamedTuple):
    """A part of a step: a category of kernels, or a kind of span; ``phase`` of kernels (nothing for others)."""

    name: str
    phase: str = ""

    def __str__(self) -> str:
        return f"{self.name}, {self.phase}" if self.phase else self.name


def step_parts(analysis: StepAnalysis, ranks: Sequence[int]) -> dict[StepPart, float]:
    """Exposed seconds per step of the mean of *ranks*, by part; they sum to the step.

    Times of kernels are those of the breakdown, split between categories as the kernels' own times are.
    """
    out: dict[StepPart, float] = {}
    weight = 1.0 / len(ranks) / analysis.steps
    for rank in ranks:
        c = int(analysis.trace.rank_class[rank])
        seconds = analysis.ledger.seconds[c]
        for phase in PHASES:
            for category, share in _shares(analysis, c, phase).items():
                part = StepPart(category, phase)
                out[part] = out.get(part, 0.0) + weight * share * float(seconds[COLUMN[phase]])
        for kind in OTHERS:
            out[StepPart(kind)] = out.get(StepPart(kind), 0.0) + weight * float(seconds[COLUMN[kind]])
        out[StepPart(IDLE)] = out.get(StepPart(IDLE), 0.0) + weight * float(seconds[BUBBLE])
    return {part: value for part, value in out.items() if value > 0}


def _shares(analysis: StepAnalysis, c: int, phase: str) -> dict[str, float]:
    """Of the kernels of a class in a phase, the part that each category has."""
    trace, names = analysis.trace, {label.name for label in analysis.trace.labels}
    categories = [category_of(label.name, names) if label.kind == phase else "" for label in trace.labels]
    found: dict[str, float] = {}
    for number, (owner, _) in enumerate(trace.chains):
        if owner == c:
            spans = trace.spans_of(number)
            sums = np.bincount(spans.label, spans.end - spans.start, len(categories))
            for label in np.flatnonzero(sums).tolist():
                if categories[label]:
                    found[categories[label]] = found.get(categories[label], 0.0) + float(sums[label])
    total = sum(found.values())
    return {category: value / total for category, value in found.items()} if total else {}
