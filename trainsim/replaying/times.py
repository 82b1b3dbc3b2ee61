"""How long passes and messages take in a replay: per stage, in any one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real

from trainsim.errors import InvalidPlan
from trainsim.schedules import Work
from trainsim.schedules.orders import Cells, Order

Given = float | Sequence[float]
"""A time of every stage, or one for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Time of each stage's passes, of a message, and of a pair that overlaps (None: of one after the other)."""

    forward: tuple[float, ...]
    input_gradient: tuple[float, ...]
    weight_gradient: tuple[float, ...]
    p2p: float
    overlapped: float | None

    def of(self, cells: Cells) -> float:
        """Time of one cell."""
        if len(cells) == 2 and self.overlapped is not None:
            return self.overlapped
        return sum(self._alone(cell.work, cell.stage) for cell in cells)

    def _alone(self, work: Work, stage: int) -> float:
        if work is Work.B:
            return self.input_gradient[stage] + self.weight_gradient[stage]
        return {Work.F: self.forward, Work.I: self.input_gradient, Work.W: self.weight_gradient}[work][stage]

    def scaled(self, scale: float) -> Times:
        """All times multiplied by *scale*."""
        return Times(
            forward=tuple(t * scale for t in self.forward),
            input_gradient=tuple(t * scale for t in self.input_gradient),
            weight_gradient=tuple(t * scale for t in self.weight_gradient),
            p2p=self.p2p * scale,
            overlapped=None if self.overlapped is None else self.overlapped * scale,
        )


def per_stage(name: str, given: Given, order: Order) -> tuple[float, ...]:
    """*given* for every stage of *order*; replicas of a two-way pipeline take as long as their originals."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) not in (order.chain, order.stages):
            raise InvalidPlan(f"{name} has {len(given)} times, but the order has {order.chain} stages")
        times = [one_time(f"{name}[{k}]", value) for k, value in enumerate(given)]
        return tuple(times) * (order.stages // len(times))
    return (one_time(name, given),) * order.stages


def one_time(name: str, value: object) -> float:
    """*value* as a time; raises InvalidPlan where it is none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value) or value < 0:
        raise InvalidPlan(f"{name} is a time, 0 or more, not {value!r}")
    return float(value)
