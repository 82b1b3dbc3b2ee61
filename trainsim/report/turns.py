"""Passes that run at once, kernel by kernel: whose turn it is on the compute chain, and which of them sends what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainsim.analysis.kinds import IN_PASSES
from trainsim.analysis.lanes import Floats, Ints
from trainsim.analysis.passes import Passes
from trainsim.contracts.record import Label
from trainsim.report.drawn_ranks import DrawnRank, name
from trainsim.report.intervals import Intervals


class StreamSpans(NamedTuple):
    """Spans of one chain in a window: the number of the label, the microbatch, start and end (seconds)."""

    label: Ints
    microbatch: Ints
    start: Floats
    end: Floats


class NamedTurn(NamedTuple):
    """A stretch of the compute chain in which one of two passes runs: its name (``F4``), its layers, start and end."""

    name: str
    layers: tuple[int, ...]
    start: float
    end: float

    @property
    def words(self) -> str:
        """
        >>> NamedTurn("F4", (11, 12), 0.0, 1.0).words, NamedTurn("B3.1", (7,), 0.0, 1.0).words
        ('F4, layers 11 to 12', 'B3.1, layer 7')
        """
        if not self.layers:
            return self.name
        first, last = min(self.layers), max(self.layers)
        return f"{self.name}, " + (f"layer {first}" if first == last else f"layers {first} to {last}")


def passes_at(passes: Passes, spans: StreamSpans) -> Ints:
    """The number of the pass that each span belongs to: of its microbatch, under way when it starts; -1 for none."""
    out = np.full(len(spans.start), -1)
    seen = np.flatnonzero((passes.end > spans.start.min(initial=np.inf)) & (passes.start < spans.end.max(initial=0.0)))
    for k in seen.tolist():
        inside = (spans.start >= passes.start[k]) & (spans.start < passes.end[k])
        out[inside & (spans.microbatch == passes.microbatch[k])] = k
    return out


def pass_name(passes: Passes, k: int) -> str:
    """``F3.1``."""
    return f"{passes.work[k]}{name(passes, k)}"


def turns_of(actor: DrawnRank, spans: StreamSpans, labels: tuple[Label, ...]) -> Iterator[NamedTurn]:
    """The turns of the compute chain's *spans* that are in pairs of passes."""
    passes, group = actor.passes, actor.groups
    of = passes_at(passes, spans)
    pairs = (group.forward >= 0) & (group.other >= 0)
    both = {int(k) for numbers in (group.forward[pairs], group.other[pairs]) for k in numbers}
    edges = np.flatnonzero(np.diff(of, prepend=-2, append=-2))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if (k := int(of[first])) in both:
            layers = {labels[number].layer for number in spans.label[first:last].tolist()} - {-1}
            turn = NamedTurn(
                pass_name(passes, k), tuple(sorted(layers)), float(spans.start[first]), float(spans.end[last - 1])
            )
            yield turn


def sent_by(passes: Passes, spans: StreamSpans, label: Label, *, paired: bool) -> tuple[tuple[str, ...], Ints]:
    """What stands in each of *spans*, which have one label, and the numbers of the passes that they belong to: the pass
    and what it sends, if passes are *paired* and it belongs to one; else its name."""
    words = label.name.partition(".")[0]
    if label.kind not in IN_PASSES or not paired:
        return (label.name,) * len(spans.start), np.full(len(spans.start), -1)
    of = passes_at(passes, spans)
    return tuple(f"{pass_name(passes, k)} {words}" if k >= 0 else label.name for k in of.tolist()), of


def by_work(passes: Passes, spans: StreamSpans, of: Ints) -> Iterator[tuple[str, Intervals]]:
    """The spans of each kind of pass (``F``, ``B``, ...)."""
    works = np.array([*passes.work, ""], object)[of]
    for work in dict.fromkeys(works.tolist()):
        if work:
            yield work, Intervals(spans.start[works == work], spans.end[works == work])
