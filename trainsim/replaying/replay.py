"""What a replay found: makespan, the bubble by each of its definitions, activations held, when gradients are ready."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from trainsim.contracts.system import Floats
from trainsim.replaying.mail import Step
from trainsim.replaying.running import spans
from trainsim.replaying.times import Times
from trainsim.schedules import Work
from trainsim.schedules.cells import format_cell
from trainsim.schedules.orders import Cells, Order

STEADY = 6
"""Back-to-back steps after which their period is read: the time that the last of them adds."""
WHOLE = frozenset((Work.B, Work.W))
INPUT = frozenset((Work.B, Work.I))


class Span(NamedTuple):
    """One cell as it was carried out; ``start`` and ``end`` in the unit of the times given."""

    rank: int
    cell: str
    start: float
    end: float


class WeightWindow(NamedTuple):
    """When a stage's weights are first used and its gradient is complete; ``slack``: from then to the step's end."""

    rank: int
    stage: int
    first_use: float
    gradient_ready: float
    slack: float


@dataclass(frozen=True, slots=True)
class ReplayBubble:
    """How much of the time ranks do nothing: three fractions that are all in use, and the ratio of one paper."""

    step: Replay = field(repr=False)

    @property
    def fraction(self) -> float:
        """Idle time of all ranks over the makespan."""
        return _idle(self._busy, self.step.makespan)

    @property
    def span_fraction(self) -> float:
        """Idle time of the busiest rank over the longest time from a rank's first pass to the end of its last."""
        lengths = [e[-1] - s[0] for s, e in zip(self.step.starts, self.step.ends, strict=True) if len(s)]
        return _idle(max(self.step.busy), float(max(lengths)))

    @property
    def period_fraction(self) -> float:
        """Idle time of the busiest rank over the period of steps that follow each other without a flush."""
        return _idle(max(self.step.busy), self.step.period)

    @property
    def idle_over_ideal(self) -> float:
        """Idle over busy time of all ranks: (p-1)/m for 1F1B (Narayanan et al., 2021, arXiv 2104.04473)."""
        return self.step.makespan / self._busy - 1.0 if self._busy else 0.0

    @property
    def _busy(self) -> float:
        return sum(self.step.busy) / len(self.step.busy)


@dataclass(frozen=True, kw_only=True, repr=False)
class Replay:
    """What happened: by rank, when each cell of its order started and ended, in the unit of the times given."""

    order: Order = field(repr=False)
    times: Times
    rows: tuple[tuple[Step, ...], ...] | None = field(default=None, repr=False)
    starts: tuple[Floats, ...] = field(repr=False, compare=False)
    ends: tuple[Floats, ...] = field(repr=False, compare=False)

    @property
    def makespan(self) -> float:
        """From the first start to the last end; the first pass starts at 0."""
        return float(max(ends[-1] for ends in self.ends if len(ends)))

    @property
    def busy(self) -> tuple[float, ...]:
        """Time at work, per rank."""
        return tuple(float((ends - starts).sum()) for starts, ends in zip(self.starts, self.ends, strict=True))

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Most chunks' activations held at once, per rank: from the start of F to the end of B, or of W."""
        return tuple(_peak(row, WHOLE) for row in self.order.rows)

    @property
    def in_flight_input(self) -> tuple[int, ...]:
        """The same from the start of F to the end of B, or of I: what the input gradient alone needs."""
        return tuple(_peak(row, INPUT) for row in self.order.rows)

    @property
    def pending_weight_gradients(self) -> int:
        """Most input gradients on one rank whose weight gradient is still to come."""
        return max(_peak(row, frozenset((Work.W,)), Work.I) for row in self.order.rows)

    @property
    def warmup(self) -> tuple[int, ...]:
        """Forwards of every rank before its first backward."""
        return tuple(_before_first_backward(row) for row in self.order.rows)

    @cached_property
    def period(self) -> float:
        """Time per step in steady state, when steps follow each other without a barrier or a flush."""
        _, ends = spans(self.order, self.times, self.rows, STEADY)
        finished = [
            max(float(ends[rank][steps * len(row) - 1]) for rank, row in enumerate(self.order.rows) if row)
            for steps in (STEADY - 1, STEADY)
        ]
        return finished[1] - finished[0]

    @property
    def idle_over_ideal(self) -> float:
        """Idle over busy time of all ranks."""
        return self.bubble.idle_over_ideal

    @property
    def bubble(self) -> ReplayBubble:
        """The bubble, by each of its definitions."""
        return ReplayBubble(self)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every cell with its rank, start and end; by rank, in order."""
        return tuple(
            Span(rank, format_cell(cells), float(start), float(end))
            for rank, row in enumerate(self.order.rows)
            for cells, start, end in zip(row, self.starts[rank], self.ends[rank], strict=True)
        )

    @property
    def windows(self) -> tuple[WeightWindow, ...]:
        """When each stage's weights are used and its gradient can be reduced; by stage."""
        first: dict[int, float] = {}
        ready: dict[int, float] = {}
        for rank, row in enumerate(self.order.rows):
            for cells, start, end in zip(row, self.starts[rank], self.ends[rank], strict=True):
                for cell in cells:
                    first.setdefault(cell.stage, float(start))
                    ready[cell.stage] = float(end)
        whole = self.makespan
        return tuple(
            WeightWindow(rank, stage, first[stage], ready[stage], whole - ready[stage])
            for stage, rank in enumerate(self.order.rank_of)
        )

    def __repr__(self) -> str:
        size = f"{self.order.ranks} ranks, {self.order.stages} stages, {self.order.microbatches} microbatches"
        return f"<Replay of {size}: makespan {self.makespan:g}>"


def _idle(busy: float, whole: float) -> float:
    return 1.0 - busy / whole if whole else 0.0


def _peak(row: Iterable[Cells], ends: frozenset[Work], begins: Work = Work.F) -> int:
    """Most that *begins* has begun and *ends* have not ended."""
    held = peak = 0
    for cells in row:
        held += sum(cell.work is begins for cell in cells)
        peak = max(peak, held)
        held -= sum(cell.work in ends for cell in cells)
    return peak


def _before_first_backward(row: Iterable[Cells]) -> int:
    count = 0
    for cells in row:
        if any(cell.work is not Work.F for cell in cells):
            return count
        count += 1
    return count
