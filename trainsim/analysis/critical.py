"""The critical path: from the end of the step back to its start, each time to what let it go on."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.analysis.kinds import IN_PASSES
from trainsim.analysis.lanes import Lane, Lanes
from trainsim.contracts.instructions import KINDS


class Leg(NamedTuple):
    """An interval of the path (seconds) in which one class of ranks works, sends or waits; ``sends``: a message of its
    is under way."""

    stage: int
    chain: str
    start: float
    end: float
    sends: bool


class Cause(NamedTuple):
    """A kind of span (or ``bubble``) on the critical path: seconds per step, and their share of it."""

    kind: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """``legs`` from 0 to the end without a hole; ``causes`` sum their seconds per step by kind, longest first;
    ``phases`` sum them as ``passes``, ``messages``, ``dp`` (reductions and gathers), ``update`` (all else) and, where
    there is one, ``rollout``.
    """

    legs: tuple[Leg, ...]
    causes: tuple[Cause, ...]
    phases: dict[str, float]


def critical_path(lanes: Lanes) -> CriticalPath:
    """Follow the causes of the trace back from the row that ends last."""
    if not any(len(lane) for lane in lanes.all):
        return CriticalPath(legs=(), causes=(), phases={})
    last = max((lane for lane in lanes.all if len(lane)), key=lambda lane: float(lane.end.max()))
    walk = _Walk(lanes)
    walk.back(last, int(last.end.argmax()))
    steps, whole = lanes.steps, lanes.duration
    causes = sorted(walk.seconds.items(), key=lambda item: -item[1])
    return CriticalPath(
        legs=tuple(reversed(walk.legs)),
        causes=tuple(Cause(kind, seconds / steps, seconds / whole) for kind, seconds in causes if seconds > 0),
        phases={phase: seconds / steps for phase, seconds in walk.phases.items()},
    )


class _Walk:
    def __init__(self, lanes: Lanes):
        self.lanes = lanes
        self.offset: list[int] = lanes.offset.tolist()
        self.stage: list[int] = lanes.stage.tolist()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.phases = dict.fromkeys(("passes", "messages", "dp", "update"), 0.0)
        self.legs: list[Leg] = []

    def back(self, lane: Lane, row: int) -> None:
        """Go on until the start of the step; *at* is where the path known so far begins."""
        at, left = float(lane.end[row]), self.offset[-1] * 2
        while at > 0.0 and left:
            left -= 1
            at = self._add(lane, row, "bubble", float(lane.end[row]), at)
            at = self._body(lane, row, float(lane.start[row]), at)
            cause = int(lane.cause[row])
            if 0 <= cause != self.offset[lane.number] + row:
                number = bisect_right(self.offset, cause) - 1
                source, before = self.lanes.all[number], cause - self.offset[number]
                if source.end[before] <= at:
                    lane, row = source, before
                    continue
            at = self._add(lane, row, KINDS[int(lane.first[row])], float(lane.posted[row]), at)
            if row == 0:
                self._add(lane, row, "bubble", 0.0, at)
                return
            row -= 1

    def _body(self, lane: Lane, row: int, start: float, at: float) -> float:
        """The row's spans until *at*."""
        if start < at < lane.end[row]:  # something in the middle of the row was the cause
            return self._add(lane, row, KINDS[int(lane.last[row])], start, at)
        if start < at:
            for kind, seconds in zip(KINDS, (lane.seconds[row] + lane.held[row]).tolist(), strict=True):
                if seconds:
                    self._count(lane, row, kind, seconds)
            self._leg(lane, start, at)
        return min(start, at)

    def _add(self, lane: Lane, row: int, kind: str, start: float, at: float) -> float:
        if at <= start:
            return at
        self._count(lane, row, kind, at - start)
        self._leg(lane, start, at)
        return start

    def _count(self, lane: Lane, row: int, kind: str, seconds: float) -> None:
        self.seconds[kind] += seconds
        if kind in ("pp", "dp"):
            phase = "messages" if kind == "pp" else "dp"
        else:
            phase = "passes" if lane.in_pass[row] or kind in IN_PASSES else "update"
        if lane.generates[row]:
            phase = "rollout"
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    def _leg(self, lane: Lane, start: float, end: float) -> None:
        stage = self.stage[lane.owner]
        if self.legs and self.legs[-1].chain == lane.name and self.legs[-1].stage == stage:
            end = self.legs.pop().end
        self.legs.append(Leg(stage, lane.name, start, end, lane.is_messages))
