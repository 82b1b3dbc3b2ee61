"""
Replay an order of passes with given times: how long it takes and how much of that is bubble. No model, no machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import frexp, inf, isfinite
from numbers import Real
from typing import NamedTuple

import numpy as np

from trainsim.engine import run
from trainsim.errors import InvalidPlan, NotBuilt
from trainsim.exact import LONGEST
from trainsim.fold import unfolded
from trainsim.replay.lowering import CHAIN, Times, lower
from trainsim.replay.order import Cells, Order, read_order
from trainsim.schedules import Work
from trainsim.schedules.cells import format_cell, schedule
from trainsim.system import Floats
from trainsim.trace import Trace

__all__ = ["Bubble", "Replay", "Span", "replay", "schedule"]

STEADY = 6
"""Back-to-back steps after which their period is read: the time that the last of them adds."""


class Span(NamedTuple):
    """One cell as it was carried out; ``start`` and ``end`` in the unit of the times given."""

    rank: int
    cell: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Bubble:
    """How much of the time ranks do nothing: three fractions that are all in use, and the ratio of one paper."""

    step: Replay = field(repr=False)

    @property
    def fraction(self) -> float:
        """Idle time of all ranks over the makespan."""
        return _idle(self._busy, self.step.makespan)

    @property
    def span_fraction(self) -> float:
        """Idle time of the busiest rank over the longest time from a rank's first pass to the end of its last."""
        spans = [e[-1] - s[0] for s, e in zip(self.step.starts, self.step.ends, strict=True) if len(s)]
        return _idle(max(self.step.busy), float(max(spans)))

    @property
    def period_fraction(self) -> float:
        """Idle time of all ranks over the period of steps that follow each other without a flush."""
        return _idle(self._busy, self.step.period)

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
        return tuple(_peak(row) for row in self.order.rows)

    @cached_property
    def period(self) -> float:
        """Time per step in steady state, when steps follow each other without a barrier or a flush."""
        _, ends = _run(self.order, self.times, STEADY)
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
    def bubble(self) -> Bubble:
        """The bubble, by each of its definitions."""
        return Bubble(self)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every cell with its rank, start and end; by rank, in order."""
        return tuple(
            Span(rank, format_cell(cells), float(start), float(end))
            for rank, row in enumerate(self.order.rows)
            for cells, start, end in zip(row, self.starts[rank], self.ends[rank], strict=True)
        )

    def __repr__(self) -> str:
        size = f"{self.order.ranks} ranks, {self.order.stages} stages, {self.order.microbatches} microbatches"
        return f"<Replay of {size}: makespan {self.makespan:g}>"


def replay(
    order: Iterable[Iterable[str]],
    *,
    forward: float = 1.0,
    input_gradient: float = 1.0,
    weight_gradient: float = 1.0,
    p2p: float = 0.1,
    p2p_mode: str = "async",
    overlapped: float | None = None,
) -> Replay:
    """Carry out *order* (PyTorch's cells, a row per rank), each cell as soon as its rank and its inputs are there.

    Times are per chunk, in any one unit: ``B`` takes *input_gradient* and *weight_gradient* together, an overlapped
    pair *overlapped* (None: as long as one after the other). A message between two ranks takes *p2p* and holds up
    nobody. Raises InvalidPlan for an order that is not one, Deadlock for one that cannot be carried out, NotBuilt for
    ``p2p_mode="blocking"``.

    >>> step = replay(schedule("1f1b", stages=4, microbatches=8), p2p=0)
    >>> step.makespan, step.in_flight, round(step.bubble.fraction, 6) == round(3 / 11, 6)
    (33.0, (4, 3, 2, 1), True)
    """
    if p2p_mode == "blocking":
        raise NotBuilt('p2p_mode="blocking" is not simulated yet; "async" sends without holding up the sender')
    if p2p_mode != "async":
        raise InvalidPlan(f'p2p_mode is "async" or "blocking", not {p2p_mode!r}')
    times = Times(
        forward=_time("forward", forward),
        input_gradient=_time("input_gradient", input_gradient),
        weight_gradient=_time("weight_gradient", weight_gradient),
        p2p=_time("p2p", p2p),
        overlapped=None if overlapped is None else _time("overlapped", overlapped),
    )
    checked = read_order(order)
    spans = _run(checked, times)
    return Replay(order=checked, times=times, starts=spans[0], ends=spans[1])


def _time(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value) or value < 0:
        raise InvalidPlan(f"{name} is a time, 0 or more, not {value!r}")
    return float(value)


def _run(order: Order, times: Times, iterations: int = 1) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """(Starts, ends) of the cells of every rank. The clock is exact: a power of two makes the most of its range."""
    scale = _scale(order, times, iterations)
    trace = run(unfolded(lower(order, times.scaled(scale), iterations)))
    spans = [_cells(trace, rank, scale) for rank in range(order.ranks)]
    return tuple(s for s, _ in spans), tuple(e for _, e in spans)


def _scale(order: Order, times: Times, iterations: int) -> float:
    """The largest power of two that keeps any way of carrying out the order within the clock."""
    slowest = times.forward + times.input_gradient + times.weight_gradient + 2.0 * times.p2p
    cells = sum(map(len, order.rows))
    longest = iterations * cells * (slowest + (times.overlapped or 0.0))
    if longest == 0.0:
        return 1.0
    if longest == inf:
        raise InvalidPlan("these times add up to more than a number can hold; use a larger unit")
    return 2.0 ** -frexp(longest / LONGEST)[1]


def _cells(trace: Trace, rank: int, scale: float) -> tuple[Floats, Floats]:
    """(Start, end) of every kernel of a rank, in the order of its cells."""
    chain = trace.number.get((int(trace.rank_class[rank]), CHAIN))
    if chain is None:
        return np.zeros(0), np.zeros(0)
    table = np.frombuffer(trace.rows[chain].table).reshape(-1, 4)
    which = table[:, 0].astype(np.int64)
    counts = np.array([len(run.starts) for run in trace.runs], np.int64)
    begins = np.cumsum(counts) - counts
    many = counts[which]
    inside = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    at = np.repeat(begins[which], many) + inside
    base = np.repeat(table[:, 3], many)
    starts = np.concatenate([run.starts for run in trace.runs])[at]
    ends = np.concatenate([run.ends for run in trace.runs])[at]
    return (base + starts) / scale, (base + ends) / scale


def _idle(busy: float, whole: float) -> float:
    return 1.0 - busy / whole if whole else 0.0


def _peak(row: Iterable[Cells]) -> int:
    held = peak = 0
    for cells in row:
        held += sum(cell.work is Work.F for cell in cells)
        peak = max(peak, held)
        held -= sum(cell.work in (Work.B, Work.W) for cell in cells)
    return peak
