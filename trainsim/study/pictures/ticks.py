"""The values of an axis as places in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainsim.figures import legible
from trainsim.study.swept import SweptPoint
from trainsim.study.trial import word

MOST, BINS = 12, 6
"""Numbers that each have a place of their own, and the groups that more of them are put into."""
LONGEST = 22
"""Letters of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """The places of an axis: their ``titles`` in order, and the place ``of`` each value as a scenario writes it."""

    axis: str
    titles: tuple[str, ...]
    of: dict[str, int]

    def __len__(self) -> int:
        return len(self.titles)

    def at(self, point: SweptPoint) -> int:
        """The place of *point*; one that leaves out the axis has the first."""
        return self.of.get(written(point, self.axis), 0)


def written(point: SweptPoint, axis: str) -> str:
    """The value of *axis* at *point*, as a scenario writes it."""
    return word(point.values[axis]) if axis in point.values else AS_IS


AS_IS = "as it is"
"""The value of an axis that a point leaves out."""


def ticks(axis: str, points: Sequence[SweptPoint]) -> Ticks:
    """The places of *axis*: numbers in their order, many of them together, other values as they came."""
    values: dict[str, Any] = {written(point, axis): point.values.get(axis) for point in points}
    numbers = {name: value for name, value in values.items() if _is_number(value)}
    if len(numbers) < len(values):
        return _ticks(axis, {name: name for name in values})
    ordered = sorted(numbers, key=lambda name: numbers[name])
    if len(ordered) <= MOST:
        return _ticks(axis, {name: _short(numbers[name]) for name in ordered})
    groups = [ordered[k * len(ordered) // BINS : (k + 1) * len(ordered) // BINS] for k in range(BINS)]
    titles = {name: f"{numbers[g[0]]:.3g}–{numbers[g[-1]]:.3g}" for g in groups for name in g}
    return _ticks(axis, titles)


def _ticks(axis: str, titles: dict[str, str]) -> Ticks:
    places = {title: place for place, title in enumerate(dict.fromkeys(titles.values()))}
    return Ticks(
        axis=axis,
        titles=tuple(_cut(title) for title in places),
        of={name: places[title] for name, title in titles.items()},
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else word(value)


def _cut(title: str) -> str:
    text = legible(title).text
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
