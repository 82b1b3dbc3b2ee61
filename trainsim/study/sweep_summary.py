"""What a sweep says on the whole: its best point, what is traded for memory, which axis matters, what cannot run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any

from trainsim.study.swept import SweptPoint
from trainsim.study.trial import Measures, word

MANY_VALUES, BINS = 8, 4
"""Numbers of an axis from which on they are taken together, and in how many groups."""


class SweepGoal(Enum):
    """By what points compare: the name is that of the column. Steps of one size on as many GPUs by their time, steps of
    several sizes by tokens, several numbers of GPUs by tokens of each."""

    STEP = "step_time_s"
    TOKENS = "tokens_per_s"
    PER_GPU = "tokens_per_s_per_gpu"

    def time(self, ran: Measures) -> float:
        """Seconds of a step; or seconds, or GPU-seconds, per token: less is better."""
        rates = {SweepGoal.TOKENS: ran.tokens_per_s, SweepGoal.PER_GPU: ran.tokens_per_s_per_gpu}
        return ran.step_time if self is SweepGoal.STEP else 1.0 / rates[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A value of an axis, or several numbers together: ``median`` and ``best`` are the times of its points."""

    title: str
    points: int
    median: float
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How much an axis matters: its ``levels`` in order. ``effect`` is by what part the median time of its worst level
    is longer than that of its best one; ``effect_on_best`` the same of the best points."""

    axis: str
    levels: tuple[Level, ...]

    @property
    def effect(self) -> float:
        medians = [level.median for level in self.levels]
        return max(medians) / min(medians) - 1.0

    @property
    def effect_on_best(self) -> float:
        bests = [level.best for level in self.levels]
        return max(bests) / min(bests) - 1.0

    @property
    def best(self) -> Level:
        """The level with the shortest median time."""
        return min(self.levels, key=lambda level: level.median)

    @property
    def worst(self) -> Level:
        return max(self.levels, key=lambda level: level.median)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; times relative to the best level."""
        least = self.best.median
        return {
            "axis": self.axis,
            "effect": self.effect,
            "effect_on_best": self.effect_on_best,
            "best": self.best.title,
            "worst": self.worst.title,
            "levels": [
                {"value": level.title, "points": level.points, "relative_time": level.median / least}
                for level in self.levels
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPoints:
    """Why ``points`` could not run: the first ``reason`` of as many that differ in numbers only."""

    reason: str
    points: int
    reasons: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """``fastest``: of those that fit, the one with most tokens/s. ``thriftiest``: the one with most tokens/s of each
    GPU, or with the least cost where a price is given. ``front``: those that fit and that no other beats in time and
    memory, least memory first. ``sensitivities``: what matters most first. ``not_run``: the commonest reason first."""

    points: int
    left_out: int
    ran: int
    fit: int
    objective: SweepGoal
    fastest: SweptPoint | None
    thriftiest: SweptPoint | None
    front: tuple[SweptPoint, ...]
    sensitivities: tuple[Sensitivity, ...]
    not_run: tuple[RefusedPoints, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; SI units."""
        return {
            "points": self.points,
            "left_out": self.left_out,
            "ran": self.ran,
            "fit": self.fit,
            "objective": self.objective.value,
            "fastest": self.fastest and self.fastest.row(),
            "thriftiest": self.thriftiest and self.thriftiest.row(),
            "front": [point.row() for point in self.front],
            "sensitivities": [sensitivity.to_dict() for sensitivity in self.sensitivities],
            "not_run": [{"reason": one.reason, "points": one.points, "reasons": one.reasons} for one in self.not_run],
        }


def summarize(axes: Sequence[str], points: Sequence[SweptPoint], *, left_out: int = 0) -> Summary:
    """The summary of *points*."""
    ran = [point.ran for point in points if point.ran]
    fitting = [point for point in points if point.fits]
    objective = objective_of(ran)
    return Summary(
        points=len(points),
        left_out=left_out,
        ran=len(ran),
        fit=len(fitting),
        objective=objective,
        fastest=max(fitting, key=_speed, default=None),
        thriftiest=min(fitting, key=_expense, default=None),
        front=pareto_front(fitting, objective),
        sensitivities=tuple(sorted(_sensitivities(axes, points, objective), key=lambda one: -one.effect)),
        not_run=refusals([point.reason for point in points if point.ran is None]),
    )


def refusals(reasons: Sequence[str]) -> tuple[RefusedPoints, ...]:
    """The *reasons* with those together that differ in numbers only.

    >>> [(one.points, one.reasons) for one in refusals(["4 heads, not 3", "4 heads, not 3", "4 heads, not 5", "no"])]
    [(3, 2), (1, 1)]
    """
    alike: dict[str, list[str]] = {}
    for reason in reasons:
        alike.setdefault(kind_of(reason), []).append(reason)
    found = [RefusedPoints(reason=all_[0], points=len(all_), reasons=len(set(all_))) for all_ in alike.values()]
    return tuple(sorted(found, key=lambda one: -one.points))


def kind_of(reason: str) -> str:
    """*reason* without its numbers.

    >>> kind_of("parallel.tp = 3: 32 heads are not divisible by tp=3; tp=1, 2, 4 would")
    'parallel.tp = #: # heads are not divisible by tp=#; tp=# would'
    """
    return re.sub(r"\d+(?:[.,]? ?\d+)*", "#", reason)


def objective_of(ran: Sequence[Measures]) -> SweepGoal:
    """By what these compare."""
    if len({each.gpus for each in ran}) > 1:
        return SweepGoal.PER_GPU
    tokens = [each.tokens_per_s * each.step_time for each in ran]
    return SweepGoal.TOKENS if ran and max(tokens) > min(tokens) * (1 + 1e-9) else SweepGoal.STEP


def pareto_front(points: Sequence[SweptPoint], objective: SweepGoal) -> tuple[SweptPoint, ...]:
    """Those that no other beats in time and peak memory, least memory first; one of several that are equal in both."""
    known = sorted(
        ((point.ran.peak_memory, objective.time(point.ran), k) for k, point in enumerate(points) if point.ran),
    )
    front, fastest = [], float("inf")
    for _, time, k in known:
        if time < fastest:
            front.append(points[k])
            fastest = time
    return tuple(front)


def _speed(point: SweptPoint) -> float:
    return point.ran.tokens_per_s if point.ran else 0.0


def _expense(point: SweptPoint) -> tuple[float, float]:
    """The cost, if there is one; then GPU-seconds per token."""
    if point.ran is None:
        return float("inf"), float("inf")
    return point.ran.cost or 0.0, 1.0 / point.ran.tokens_per_s_per_gpu


def _sensitivities(axes: Sequence[str], points: Sequence[SweptPoint], objective: SweepGoal) -> list[Sensitivity]:
    """Of each axis with two values or more among the points that ran."""
    found = []
    for axis in axes:
        pairs = [
            (point.values[axis], objective.time(point.ran)) for point in points if point.ran and axis in point.values
        ]
        levels = _levels(pairs)
        if len(levels) > 1:
            found.append(Sensitivity(axis=axis, levels=tuple(levels)))
    return found


def _levels(pairs: Sequence[tuple[Any, float]]) -> list[Level]:
    """The levels of an axis: each value, or numbers together where there are many."""
    groups: dict[str, list[float]] = {}
    values: dict[str, Any] = {}
    for value, time in pairs:
        groups.setdefault(word(value), []).append(time)
        values[word(value)] = value
    if len(groups) > MANY_VALUES and all(_is_number(value) for value in values.values()):
        return _binned(sorted(pairs, key=lambda pair: pair[0]))
    return [_level(title, times) for title, times in groups.items()]


def _binned(pairs: Sequence[tuple[Any, float]]) -> list[Level]:
    """As many neighbours in each level; equal numbers stay together."""
    levels: list[Level] = []
    start = 0
    for number in range(1, BINS + 1):
        end = round(number * len(pairs) / BINS)
        while 0 < end < len(pairs) and pairs[end][0] == pairs[end - 1][0]:
            end += 1
        part = pairs[start:end]
        if part:
            low, high = part[0][0], part[-1][0]
            title = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
            levels.append(_level(title, [time for _, time in part]))
        start = max(start, end)
    return levels


def _level(title: str, times: Sequence[float]) -> Level:
    return Level(title=title, points=len(times), median=median(times), best=min(times))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
