"""Every combination of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainsim.errors import ScenarioError
from trainsim.study.designs.design import Design, DesignPart, checked_path, list_of


def grid(values: Mapping[str, Sequence[Any]]) -> Design:
    """Every combination of *values* (path -> list), the last path varying fastest.

    Raises ScenarioError for a path without a list of values, or with another that lies in it.

    >>> list(grid({"parallel.tp": [1, 2], "parallel.pp": [4]}))
    [{'parallel.tp': 1, 'parallel.pp': 4}, {'parallel.tp': 2, 'parallel.pp': 4}]
    """
    if not isinstance(values, Mapping):
        raise ScenarioError(
            f"a grid is a mapping from paths to values, such as {{'parallel.tp': [1, 2]}}, not {values!r}"
        )
    lists = {checked_path(path): list_of(path, tried) for path, tried in values.items()}
    parts = (DesignPart(axes=(path,), points=tuple({path: value} for value in tried)) for path, tried in lists.items())
    return Design(tuple(parts))
