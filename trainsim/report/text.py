"""The summary for a terminal, read from top to bottom; it needs 80 columns and no colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainsim.report.sections import TERMINAL, report
from trainsim.tables.blocks import Section, Source
from trainsim.tables.terminal import filled as bar
from trainsim.tables.terminal import rich_sections, titled

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from trainsim.result.result import Result


def summary(result: Result) -> Group:
    """Everything that a person wants to know first, as one rich renderable."""
    return rich_sections(report(result, TERMINAL))


def written(files: Iterable[Path]) -> Section:
    """The files that hold more."""
    return Section("Files", (Source("\n".join(map(str, files))),))


def table(columns: str, *, space: int = 2) -> Table:
    """A grid without lines; *columns* has a letter for each: ``l`` left, ``r`` right, ``L`` left and may be wrapped."""
    from rich.table import Table

    grid = Table.grid(padding=(0, space))
    for side in columns:
        grid.add_column(justify="right" if side == "r" else "left", no_wrap=side != "L")
    return grid


def plain(text: str) -> str:
    """*text* as it is, whatever brackets are in it."""
    from rich.markup import escape

    return escape(text)


def coloured(text: str, colour: str) -> Text:
    """Text in one colour."""
    from rich.text import Text

    return Text(text, style=colour)


__all__ = ["bar", "coloured", "plain", "summary", "table", "titled", "written"]
