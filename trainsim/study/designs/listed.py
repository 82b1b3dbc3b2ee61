"""Points one by one, also from a file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainsim.documents.document import DEEPEST, MOST_VALUES, UNREADABLE, Loader, text_of, value_of
from trainsim.errors import ScenarioError
from trainsim.study.designs.design import Design, DesignPart, checked_path

KINDS = (".csv", ".yaml", ".yml", ".json")
"""Endings of files of points."""


def listed(points: Iterable[Mapping[str, Any]]) -> Design:
    """The *points* as they are; what a point leaves out stays as the scenario has it.

    Raises ScenarioError for what is not a list of mappings from paths to values, or for an empty one.

    >>> listed([{"parallel.tp": 2}, {"parallel.tp": 4, "training.recompute": "full"}]).axes
    ('parallel.tp', 'training.recompute')
    """
    several = list(points) if isinstance(points, Iterable) and not isinstance(points, str | Mapping) else [points]
    for number, point in enumerate(several, 1):
        if not isinstance(point, Mapping):
            raise ScenarioError(f"point {number} is {point!r}; expected a mapping such as {{'parallel.tp': 2}}")
    axes = tuple(dict.fromkeys(checked_path(path) for point in several for path in point))
    if not axes:
        raise ScenarioError("there are no points; expected one or more, each a mapping such as {'parallel.tp': 2}")
    return Design((DesignPart(axes=axes, points=tuple(dict(point) for point in several)),))


def read_points(path: str | Path) -> Design:
    """The points in a CSV file (a column per path, an empty cell leaves the scenario's value), or in a YAML or JSON
    file with a list of mappings.

    Raises ScenarioError that names the file and what is wrong with it.
    """
    file = Path(path)
    if file.suffix.lower() not in KINDS:
        raise ScenarioError(f"{file}: points are in a file that ends in {', '.join(KINDS)}")
    try:
        return listed(_table(file) if file.suffix.lower() == ".csv" else _list(file))
    except ScenarioError as error:
        text = str(error)
        raise error if text.startswith(str(file)) else ScenarioError(f"{file}: {text}") from None


def _table(file: Path) -> list[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            header, *rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)] or [[]]
    except OSError as fault:
        raise ScenarioError(f"{file}: cannot be read: {fault.strerror or fault}") from None
    except (UnicodeDecodeError, csv.Error) as fault:
        raise ScenarioError(f"{file}: not a CSV file in UTF-8: {fault}") from None
    names = [name.strip() for name in header]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ScenarioError(f"{file}: two columns are called {twice!r}; keep one")
    if long := next((n for n, row in enumerate(rows, 2) if len(row) > len(names)), None):
        raise ScenarioError(f"{file}: row {long} has more cells than the {len(names)} columns; quote those with commas")
    filled = (zip(names, row, strict=False) for row in rows)
    return [{name: value_of(cell) for name, cell in row if cell.strip()} for row in filled]


def _list(file: Path) -> Any:
    text = text_of(file, str(file), ScenarioError)
    try:
        values = yaml.load(text, Loader)
    except UNREADABLE as fault:
        raise ScenarioError(f"{file}: not valid YAML: {' '.join(str(fault).split())}") from None
    if not isinstance(values, list):
        raise ScenarioError(f"{file}: holds no list; expected a list of mappings, such as - {{parallel.tp: 2}}")
    _bounded(values, [MOST_VALUES], 0)
    return values


def _bounded(value: Any, budget: list[int], depth: int) -> None:
    """Raise for values without end, which aliases of YAML can make."""
    budget[0] -= 1
    if budget[0] < 0 or depth > DEEPEST:
        raise ScenarioError("too many or too deeply nested values")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _bounded(inner, budget, depth + 1)
