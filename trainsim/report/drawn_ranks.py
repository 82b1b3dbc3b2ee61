"""The ranks of a picture: what their lanes are drawn from, worked out when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.analysis.idle import WORK, Idle, idle
from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Ints, Lane, Lanes
from trainsim.analysis.passes import Passes, UpdateSpan, passes_of, update_spans
from trainsim.contracts.record import Label
from trainsim.contracts.trace import Spans
from trainsim.report.intervals import Intervals, joined, union, without

if TYPE_CHECKING:
    from trainsim.analysis.step_analysis import StepAnalysis

DATA = ("dp", "replicas", "gather")
"""Chains that carry parameters and gradients between replicas."""
Looks = dict[str, Intervals]
"""How it looks -> when."""


class PassGroups(NamedTuple):
    """Passes, two that run at once together: when, and the numbers of a forward and of another pass that are in each
    (-1 for none)."""

    spans: Intervals
    forward: Ints
    other: Ints

    def clipped(self, window: tuple[float, float]) -> PassGroups:
        """What lies in *window*."""
        seen = (self.spans.end > window[0]) & (self.spans.start < window[1]) & (self.spans.end > self.spans.start)
        return PassGroups(self.spans.where(seen).clipped(window), self.forward[seen], self.other[seen])


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnRank:
    """One rank to draw."""

    lanes: Lanes
    rank: int

    @cached_property
    def stage(self) -> int:
        """Its place in the pipeline."""
        return int(self.lanes.stage[self._class])

    @property
    def _class(self) -> int:
        return int(self.lanes.trace.rank_class[self.rank])

    @property
    def lane(self) -> Lane:
        """The rows of its compute chain."""
        return self.lanes.compute[self._class]

    @cached_property
    def passes(self) -> Passes:
        """What it does of the schedule."""
        return passes_of(self.lanes, self._class)

    @cached_property
    def groups(self) -> PassGroups:
        """The same, two that run at once together."""
        return grouped(self.passes)

    @cached_property
    def idle(self) -> Idle:
        """When its compute chain waits, and for what."""
        return idle(self.lanes, self._class)

    @cached_property
    def update(self) -> tuple[UpdateSpan, ...]:
        """What its compute chain does outside the passes."""
        return update_spans(self.lanes, self._class)

    @cached_property
    def sent(self) -> Intervals:
        """Its messages; those of two ways may be under way at once."""
        lanes = [lane for lane in self.lanes.messages if lane.owner == self._class]
        starts, ends = ([np.zeros(0), *(getattr(lane, edge) for lane in lanes)] for edge in ("start", "end"))
        return Intervals(np.concatenate(starts), np.concatenate(ends))

    @property
    def chains(self) -> tuple[Lane, ...]:
        """The chains beside compute that do anything."""
        return tuple(lane for lane in self.lanes.others[self._class] if len(lane))

    def beside(self, window: tuple[float, float]) -> dict[str, Looks]:
        """What these chains do in *window*, by name."""
        return {lane.name: self._beside(lane, window) for lane in self.chains}

    @cached_property
    def exposed(self) -> Intervals:
        """When its compute chain waits for collectives and copies of its own, rather than for another rank."""
        rest, others = self.idle, self.lanes.others[self._class]
        messages = set(map(str, self.lanes.trace.messages.values()))
        carry = {lane.name for lane in others if not (lane.seconds[:, WORK].any() or lane.generates.any())} - messages
        own = (rest.source == self.stage) & np.isin(np.array(rest.what, str), np.array([*carry], str))
        return joined(Intervals(rest.start, rest.end).where(own))[0]

    def doing(self, window: tuple[float, float]) -> Looks:
        """What its compute chain does in *window*: spans by kind, exposed waits, other waits."""
        trace = self.lanes.trace
        spans = spans_within(self.lanes, self.lane.number, window)
        order = np.argsort(code := _looks(trace.labels)[1][spans.label], kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
        looks = {}
        for part in parts:
            part = part[spans.end[part] > spans.start[part]]
            if len(part):
                look = _looks(trace.labels)[0][int(code[part[0]])]
                looks[look] = joined(Intervals(spans.start[part], spans.end[part]))[0].clipped(window)
        busy = joined(union(looks.values()))[0]
        exposed = without(self.exposed.clipped(window), busy)[0]
        everything = Intervals(np.zeros(1), np.array([self.lanes.duration])).clipped(window)
        waits = without(without(everything, busy)[0], exposed)[0]
        return looks | {"exposed": exposed, "bubble": waits}

    def _beside(self, lane: Lane, window: tuple[float, float]) -> Looks:
        """The spans of a chain in *window*, without the time in which it waits; its copies look like what they are
        for."""
        spans = spans_within(self.lanes, lane.number, window)
        looks = np.array([_look_beside(label, lane.name) for label in self.lanes.trace.labels], object)[spans.label]
        order = np.argsort(spans.start, kind="stable")
        of = {look: order[looks[order] == look] for look in dict.fromkeys(looks.tolist())}
        return {look: Intervals(spans.start[k], spans.end[k]).clipped(window) for look, k in of.items()}


def drawn_ranks(result: StepAnalysis, ranks: Sequence[int]) -> tuple[DrawnRank, ...]:
    """The ranks to draw, in this order."""
    return tuple(DrawnRank(lanes=result.lanes, rank=rank) for rank in ranks)


def spans_within(lanes: Lanes, number: int, window: tuple[float, float]) -> Spans:
    """The spans of those rows of chain *number* that are, or partly are, in *window*: no others are worked out."""
    rows = lanes.trace.rows(number)
    return lanes.trace.spans_of(number, np.flatnonzero((rows.end > window[0]) & (rows.start < window[1])))


def look_of(label: Label) -> str:
    """How a span looks: its kind, but gathers of parameters look like themselves.

    >>> look_of(Label("gather unit 3", "dp", "dp", -1)), look_of(Label("reduce 0.1", "dp", "dp", -1))
    ('gather', 'dp')
    """
    return "gather" if label.kind == "dp" and label.name.startswith("gather") else label.kind


@lru_cache(maxsize=2)
def _looks(labels: tuple[Label, ...]) -> tuple[tuple[str, ...], Ints]:
    """How *labels* look: all looks, and the number of that of each."""
    each = [look_of(label) for label in labels]
    looks = tuple(dict.fromkeys(each))
    return looks, np.array([looks.index(look) for look in each], np.int64)


def _look_beside(label: Label, chain: str) -> str:
    if chain in DATA and label.kind in ("dp", "copy"):
        return "gather" if label.name.startswith("gather") else "dp"
    return label.kind if chain in DATA or chain not in COLUMN else chain


def named(passes: Passes) -> Iterator[tuple[str, float, float]]:
    """Name (``F3.1``), start and end of each pass; two at once have one name (``F3&B1``)."""
    for group in together(passes):
        names = [f"{passes.work[k]}{name(passes, k)}" for k in sorted(group, key=lambda k: -passes.half[k])]
        yield "&".join(names), float(passes.start[group[0]]), float(passes.end[list(group)].max())


def together(passes: Passes) -> Iterator[tuple[int, ...]]:
    """The passes one by one, two that run at once as a pair."""
    k = 0
    while k < len(passes.work):
        pair = k + 1 < len(passes.work) and passes.half[k] * passes.half[k + 1] == -1
        pair = pair and bool(passes.start[k + 1] < passes.end[k])
        yield (k, k + 1) if pair else (k,)
        k += 1 + pair


def grouped(passes: Passes) -> PassGroups:
    """All *passes*."""
    first = last = np.arange(len(passes.work))
    if passes.half.any():
        pairs = [*together(passes)]
        first, last = (np.array([pair[place] for pair in pairs], np.int64) for place in (0, -1))
    forwards = np.array([work == "F" for work in passes.work], bool)
    forward = np.where(forwards[first], first, np.where(forwards[last], last, -1))
    other = np.where(~forwards[first], first, np.where(~forwards[last], last, -1))
    spans = Intervals(passes.start[first], np.maximum(passes.end[first], passes.end[last]))
    return PassGroups(spans, forward, other)


def name(passes: Passes, k: int) -> str:
    """``3``, or ``3.1`` for chunk 1."""
    return f"{passes.microbatch[k]}" + (f".{passes.chunk[k]}" if passes.chunk[k] else "")
