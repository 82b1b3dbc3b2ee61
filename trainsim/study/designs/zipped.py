"""Values that go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainsim.errors import ScenarioError
from trainsim.study.designs.design import Design, DesignPart, checked_path, list_of


def zipped(values: Mapping[str, Sequence[Any]]) -> Design:
    """The first of each of *values* (path -> list) together, then the second of each, and so on.

    Raises ScenarioError for lists of different lengths.

    >>> list(zipped({"parallel.tp": [1, 2], "parallel.dp": [8, 4]}))
    [{'parallel.tp': 1, 'parallel.dp': 8}, {'parallel.tp': 2, 'parallel.dp': 4}]
    """
    if not isinstance(values, Mapping) or not values:
        raise ScenarioError(f"a zip is a mapping from paths to lists of the same length, not {values!r}")
    lists = {checked_path(path): list_of(path, tried) for path, tried in values.items()}
    if len({len(tried) for tried in lists.values()}) > 1:
        lengths = ", ".join(f"{path} has {len(tried)}" for path, tried in lists.items())
        raise ScenarioError(f"values that go together are equally many, but {lengths}; add or drop some")
    points = tuple(dict(zip(lists, together, strict=True)) for together in zip(*lists.values(), strict=True))
    return Design((DesignPart(axes=tuple(lists), points=points),))
