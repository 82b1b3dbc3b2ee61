"""The critical path: from the end of the step back to its start, each time to what let it go on."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.analysis.lanes import Lane, Lanes
from trainsim.program.instructions import KINDS


class Leg(NamedTuple):
    """An interval of the path (seconds) in which one class of ranks works, sends or waits."""

    stage: int
    chain: str
    start: float
    end: float


class Cause(NamedTuple):
    """A kind of span (or ``bubble``) on the critical path: seconds, and their share of the step."""

    kind: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """``legs`` from 0 to the end of the step without a hole; ``causes`` sum their seconds by kind, longest first."""

    legs: tuple[Leg, ...]
    causes: tuple[Cause, ...]


def critical_path(lanes: Lanes) -> CriticalPath:
    """Follow the causes of the trace back from the row that ends last."""
    if not any(len(lane) for lane in lanes.all):
        return CriticalPath(legs=(), causes=())
    last = max((lane for lane in lanes.all if len(lane)), key=lambda lane: float(lane.end.max()))
    walk = _Walk(lanes)
    walk.back(last, int(last.end.argmax()))
    step = lanes.step
    causes = sorted(walk.seconds.items(), key=lambda item: -item[1])
    return CriticalPath(
        legs=tuple(reversed(walk.legs)),
        causes=tuple(Cause(kind, seconds, seconds / step) for kind, seconds in causes if seconds > 0),
    )


class _Walk:
    def __init__(self, lanes: Lanes):
        self.lanes = lanes
        self.offset: list[int] = lanes.offset.tolist()
        self.stage: list[int] = lanes.stage.tolist()
        self.columns = [
            (
                lane.posted.tolist(),
                lane.start.tolist(),
                lane.end.tolist(),
                lane.cause.tolist(),
                lane.seconds + lane.held,
            )
            for lane in lanes.all
        ]
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.legs: list[Leg] = []

    def back(self, lane: Lane, row: int) -> None:
        """Go on until the start of the step; *at* is where the path known so far begins."""
        at, left = float(lane.end[row]), self.offset[-1] * 2
        while at > 0.0 and left:
            left -= 1
            posted, start, end, cause, _ = self.columns[lane.number]
            if at > end[row]:
                at = self._add(lane, "bubble", end[row], at)
            at = self._body(lane, row, start[row], at)
            if cause[row] >= 0 and self._ends(cause[row]) <= at and not self._stuck(lane, row, cause[row]):
                number = bisect_right(self.offset, cause[row]) - 1
                lane, row = self.lanes.all[number], cause[row] - self.offset[number]
                continue
            at = self._add(lane, KINDS[int(lane.first[row])], posted[row], at)
            if row == 0:
                self._add(lane, "bubble", 0.0, at)
                return
            row -= 1

    def _ends(self, cause: int) -> float:
        return float(self.lanes.row_end[cause])

    def _stuck(self, lane: Lane, row: int, cause: int) -> bool:
        """A cause of no length at the same instant in a circle; the row before is as good a cause."""
        return bool(cause == self.offset[lane.number] + row)

    def _body(self, lane: Lane, row: int, start: float, at: float) -> float:
        """The row's spans until *at*."""
        if at <= start:
            return at
        if at < self.columns[lane.number][2][row]:  # something in the middle of the row was the cause
            return self._add(lane, KINDS[int(lane.last[row])], start, at)
        for kind, seconds in zip(KINDS, self.columns[lane.number][4][row].tolist(), strict=True):
            if seconds:
                self.seconds[kind] += seconds
        self._leg(lane, start, at)
        return start

    def _add(self, lane: Lane, kind: str, start: float, at: float) -> float:
        if at <= start:
            return at
        self.seconds[kind] += at - start
        self._leg(lane, start, at)
        return start

    def _leg(self, lane: Lane, start: float, end: float) -> None:
        stage = self.stage[lane.owner]
        if self.legs and self.legs[-1].chain == lane.name and self.legs[-1].stage == stage:
            end = self.legs.pop().end
        self.legs.append(Leg(stage, lane.name, start, end))
