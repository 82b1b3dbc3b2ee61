"""A table as a value: columns that say what their numbers are, and rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Literal

from trainsim.tables.cells import Bar, Cell, Unit

SHOWN = 16
"""Rows of a long table that a terminal shows."""


@dataclass(frozen=True, slots=True)
class Column:
    """How a column reads.

    ``header``: what its cells are. ``unit``: of its numbers. ``align``: numbers stand right, all else left, unless it
    says. ``priority``: 0 stays; where a terminal is too narrow, columns with the highest number go first. ``wraps``: a
    text that may take several lines. ``width``: characters of a bar. ``like``: a value whose prefix all numbers take;
    without it the largest of the column. ``bare``: the unit stands in the header or title, not in every cell.
    ``empty``: what stands where there is nothing or zero.
    """

    header: str = ""
    unit: Unit = Unit.NUMBER
    _: KW_ONLY
    align: Literal["left", "right"] | None = None
    priority: int = 0
    wraps: bool = False
    width: int = 18
    like: float | None = None
    bare: bool = False
    empty: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells under columns. ``title`` stands above them. ``details`` are a line under each row (one per row, or
    none at all), such as the words of a command. ``extremes`` is the header of the column whose largest and smallest
    rows stay when a long table is cut for a terminal.

    >>> speeds = Table(columns=(Column("run"), Column("step", Unit.TIME)), rows=(("a", 1.5), ("b", 0.02)))
    >>> speeds.texts
    (('a', '1.50 s'), ('b', '0.02 s'))
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    details: tuple[str, ...] = ()
    extremes: str = ""

    def __post_init__(self) -> None:
        name = self.title or "table"
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{name}: {len(self.columns)} columns, but a row of {len(row)}: {row}")
        if self.details and len(self.details) != len(self.rows):
            raise ValueError(f"{name}: {len(self.rows)} rows, but {len(self.details)} details")

    def stands_right(self, number: int) -> bool:
        """Whether a column is aligned right: numbers are, unless it says."""
        column = self.columns[number]
        if column.align:
            return column.align == "right"
        return any(isinstance(row[number], int | float) for row in self.rows)

    @cached_property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """Every cell as both a terminal and a page write it; a bar is an empty text."""
        columns = [_column(column, [row[k] for row in self.rows]) for k, column in enumerate(self.columns)]
        return tuple(zip(*columns, strict=True)) if columns else ()

    def filled(self) -> Table:
        """Without columns that are empty in every row."""
        keep = [k for k, column in enumerate(self.columns) if any(not _nothing(row[k]) for row in self.rows)]
        return replace(
            self,
            columns=tuple(self.columns[k] for k in keep),
            rows=tuple(tuple(row[k] for k in keep) for row in self.rows),
        )

    def without(self, number: int) -> Table:
        """Without a column."""
        return replace(
            self,
            columns=self.columns[:number] + self.columns[number + 1 :],
            rows=tuple(row[:number] + row[number + 1 :] for row in self.rows),
        )

    def shown(self) -> list[int | None]:
        """The rows that a terminal shows, with None where some are left out."""
        if not self.extremes:
            return list(range(len(self.rows)))
        at = next(k for k, column in enumerate(self.columns) if column.header == self.extremes)
        return worth_a_line([_number(row[at]) for row in self.rows])


def worth_a_line(values: Sequence[float]) -> list[int | None]:
    """Indices worth a line: all if few; else both ends and the extremes, with None where some are left out.

    >>> worth_a_line([1.0] * 8 + [5.0] + [1.0] * 20)
    [0, 1, None, 8, None, 27, 28]
    """
    n = len(values)
    if n <= SHOWN:
        return list(range(n))
    keep = {0, 1, n - 2, n - 1, max(range(n), key=values.__getitem__), min(range(n), key=values.__getitem__)}
    out: list[int | None] = []
    for k in sorted(keep):
        if out and out[-1] is not None and k - out[-1] > 1:
            out.append(None)
        out.append(k)
    return out


def _column(column: Column, cells: Sequence[Cell]) -> list[str]:
    numbers = [cell for cell in cells if isinstance(cell, int | float)]
    like = column.like
    if like is None and column.unit.scales:
        like = max(map(abs, numbers), default=None)
    return [_text(column, cell, like) for cell in cells]


def _text(column: Column, cell: Cell, like: float | None) -> str:
    if _nothing(cell) or (column.empty and cell == 0):
        return column.empty
    if isinstance(cell, Bar):
        return ""
    if isinstance(cell, int | float):
        text = column.unit.format(cell, like)
        return _bare(column, text, like) if column.bare else text
    return str(cell)


def _bare(column: Column, text: str, like: float | None) -> str:
    """A number without its unit, which is that of the column: what is too small for it reads as nothing.

    >>> [_bare(Column("size", Unit.BYTES), text, 2.0**30) for text in ("5.3 GiB", "16.4 MiB")]
    ['5.3', '0.0']
    """
    number, _, unit = text.partition(" ")
    usual = column.unit.format(like, like).partition(" ")[2] if like else unit
    return number if unit in ("", usual) else "0.0"


def _nothing(cell: Cell) -> bool:
    return cell is None or str(cell) == "" or cell != cell  # NaN of a pandas frame


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) and cell == cell else 0.0
