"""A design as a value: axes, and a point for each combination of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import Any

from trainsim.errors import ScenarioError
from trainsim.scenario.changes import is_within

Point = Mapping[str, Any]
"""Values by dotted path, as ``Scenario.replace`` takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignPart:
    """Axes whose values go together, and their points in order; a point may leave out an axis."""

    axes: tuple[str, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Design:
    """Every combination of the points of ``parts``, those of the last part varying fastest. Designs multiply.

    >>> paths = ("parallel.tp", "parallel.pp")
    >>> one, two = (Design((DesignPart(axes=(path,), points=({path: 1}, {path: 2})),)) for path in paths)
    >>> [tuple(point.values()) for point in one * two], len(one * two)
    ([(1, 1), (1, 2), (2, 1), (2, 2)], 4)
    """

    parts: tuple[DesignPart, ...] = ()

    def __post_init__(self) -> None:
        axes = self.axes
        if twice := next((axis for k, axis in enumerate(axes) if axis in axes[:k]), None):
            raise ScenarioError(f"{twice}: has its values in two parts of the design; give it all of them in one")
        for path, section in permutations(axes, 2):
            if is_within(path, section):
                raise ScenarioError(f"{section}: each of its values would undo those of {path}; keep one of the two")

    @property
    def axes(self) -> tuple[str, ...]:
        """The paths that change, in the order in which they were given."""
        return tuple(axis for part in self.parts for axis in part.axes)

    def __mul__(self, other: Design) -> Design:
        """Every point of this one with every point of *other*. Raises ScenarioError for an axis of both."""
        return Design((*self.parts, *other.parts))

    def __len__(self) -> int:
        return prod(len(part.points) for part in self.parts)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The points, made one by one."""
        for chosen in product(*(part.points for part in self.parts)):
            yield {path: value for point in chosen for path, value in point.items()}


def checked_path(path: object) -> str:
    """*path* as that of an axis. Raises ScenarioError for what is none."""
    if not isinstance(path, str) or not path.strip():
        raise ScenarioError(f"{path!r} is not a path; a path is words joined by dots, such as 'parallel.tp'")
    return path


def list_of(path: str, values: object) -> tuple[Any, ...]:
    """*values* as those that an axis takes. Raises ScenarioError for what is not a list of one or more."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, str) or not isinstance(values, Sequence | range) or not len(values):
        raise ScenarioError(f"{path}: expected a list of values to try, not {values!r}")
    return tuple(values)
