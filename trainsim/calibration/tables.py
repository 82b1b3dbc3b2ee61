"""
Comma-separated tables as people write them: a header, comments after ``#``, any of comma, semicolon and tab.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainsim.calibration.reader import MeasuredText
from trainsim.errors import ScenarioError, shorten

SEPARATORS = ",;\t"


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells of a line that are not empty, by the column's name in lower case, and where the line stands."""

    cells: Mapping[str, str]
    place: str

    def number(self, column: str) -> float:
        """The cell as a number above zero. Raises ScenarioError that names line and column."""
        try:
            value = float(self.cells[column])
        except ValueError:
            value = float("nan")
        if not 0 < value < float("inf"):
            raise ScenarioError(f"{self.place}: {column} = {shorten(self.cells[column])} is not a number above 0")
        return value

    def first(self, columns: Iterable[str]) -> str | None:
        """The first of *columns* that has a cell here."""
        return next((column for column in columns if column in self.cells), None)

    def only(self, columns: Iterable[str]) -> str | None:
        """The one of *columns* that has a cell here. Raises ScenarioError where several have."""
        given = [column for column in columns if column in self.cells]
        if len(given) > 1:
            raise ScenarioError(f"{self.place}: {' and '.join(given)} are both given; leave all but one blank")
        return next(iter(given), None)


def header_of(text: MeasuredText) -> tuple[str, ...]:
    """The names of the columns in lower case; none where the first line is no header of several columns."""
    first = next(iter(_lines(text.start)), (0, ""))[1]
    separator = _separator(first)
    names = next(csv.reader([first], delimiter=separator), []) if first else []
    return tuple(name.strip().lower() for name in names) if len(names) > 1 else ()


def rows_of(text: MeasuredText) -> Sequence[TableRow]:
    """The lines below the header. Raises ScenarioError for a line with more cells than the header has."""
    lines = list(_lines(text.text))
    names, separator = header_of(text), _separator(lines[0][1])
    if twice := next((name for k, name in enumerate(names) if name and name in names[:k]), None):
        raise ScenarioError(f"{text.shown}: the column {twice} is there twice; keep one")
    rows = []
    for number, line in lines[1:]:
        cells = next(csv.reader([line], delimiter=separator), [])
        place = f"{text.shown}:{number}"
        if len(cells) > len(names):
            raise ScenarioError(
                f"{place}: {len(cells)} cells under a header of {len(names)}; quote cells that hold a {separator!r}"
            )
        rows.append(
            TableRow({name: cell.strip() for name, cell in zip(names, cells, strict=False) if cell.strip()}, place)
        )
    return rows


def _lines(text: str) -> list[tuple[int, str]]:
    numbered = enumerate(text.replace("\0", "").splitlines(), 1)
    return [(number, line) for number, line in numbered if line.strip() and not line.lstrip().startswith("#")]


def _separator(line: str) -> str:
    return max(SEPARATORS, key=line.count)
