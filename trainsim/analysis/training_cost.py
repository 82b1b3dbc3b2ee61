"""How long a whole training takes, and what it costs: as many steps as its tokens need, at the speed of this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainsim.analysis.likely import Range
from trainsim.errors import InvalidPlan, shorten
from trainsim.units import format_count

DAY, HOUR = 86400.0, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost:
    """Steps back to back for ``tokens`` on ``gpus`` GPUs: no checkpoints, evaluation, failures or restarts.

    ``low`` and ``high`` are the ends of the likely range as parts of the predicted time (None where there is no range).
    ``price`` is that of a GPU for an hour, in whatever currency it was given (None: not given).
    """

    tokens: float
    tokens_per_s: float
    gpus: int
    low: float | None = None
    high: float | None = None
    price: float | None = None

    @property
    def seconds(self) -> float:
        return self.tokens / self.tokens_per_s

    @property
    def days(self) -> float:
        return self.seconds / DAY

    @property
    def gpu_hours(self) -> float:
        return self.seconds / HOUR * self.gpus

    @property
    def cost(self) -> float | None:
        """In units of ``price``."""
        return None if self.price is None else self.gpu_hours * self.price

    def __str__(self) -> str:
        """
        >>> str(training_cost(15e12, 1e7, gpus=1024, price=2.5))
        '17.4 days, 426.7k GPU-hours, cost 1.07M'
        """
        paid = "" if self.cost is None else f", cost {format_count(self.cost)}"
        return f"{in_days(self.days)}, {format_count(self.gpu_hours)} GPU-hours{paid}"

    def between(self, value: float) -> tuple[float, float] | None:
        """The likely range of *value*, which is in proportion to the time of a step."""
        return None if self.low is None or self.high is None else (self.low * value, self.high * value)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        cost = self.cost
        days, gpu_hours = self.between(self.days), self.between(self.gpu_hours)
        return {
            "tokens": self.tokens,
            "days": self.days,
            "range_days": None if days is None else list(days),
            "gpu_hours": self.gpu_hours,
            "range_gpu_hours": None if gpu_hours is None else list(gpu_hours),
            "price_per_gpu_hour": self.price,
            "cost": cost,
            "range_cost": None if cost is None or self.low is None else list(self.between(cost) or ()),
        }


def in_days(*days: float) -> str:
    """
    >>> in_days(0.0123), in_days(54.321), in_days(2490.4, 3316)
    ('0.0123 days', '54.3 days', '2,490 to 3,316 days')
    """
    return " to ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in days) + " days"


def training_cost(
    tokens: float,
    tokens_per_s: float,
    *,
    gpus: int,
    price: float | None = None,
    likely: tuple[float, Range] | None = None,
) -> TrainingCost:
    """What a training on *tokens* takes at *tokens_per_s* of all *gpus* together. *likely* has the predicted time of a
    step and its range (seconds), *price* is that of a GPU for an hour.

    Raises InvalidPlan for a number that is not finite and above 0.

    >>> cost = training_cost(1e12, 1e6, gpus=64, price=2.0)
    >>> round(cost.days, 2), round(cost.gpu_hours), round(cost.cost)
    (11.57, 17778, 35556)
    """
    for name, value in (("tokens", tokens), ("tokens_per_s", tokens_per_s), ("gpus", gpus), ("price", price)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidPlan(f"{name}={shorten(value)}: expected a number above 0")
    step, ends = likely or (1.0, None)
    return TrainingCost(
        tokens=tokens,
        tokens_per_s=tokens_per_s,
        gpus=gpus,
        low=None if ends is None else ends.low / step,
        high=None if ends is None else ends.high / step,
        price=price,
    )
