"""Tables and sections in a terminal, by rich: every line fits, and columns go before lines are broken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainsim.tables.blocks import Block, Bullets, Figures, Legend, Paragraph, Section, Verbatim
from trainsim.tables.cells import Bar, Sign
from trainsim.tables.prose import Prose, breaks
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.text import Text

STYLES = {"": "", "quiet": "dim", "strong": "bold", "good": "green", "doubtful": "yellow", "bad": "bold red"}
"""What rich makes of a tone."""
GAP, NARROW_GAP = 2, 1
"""Spaces between columns, and where a table would lose a column otherwise."""
LEAST_TEXT, LEAST_BAR = 24, 8
"""Characters that a text whose lines may break, and a bar, have at least."""
FULL, EMPTY = "█", "·"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def filled(share: float, width: int) -> str:
    """A bar of *width* characters, filled to *share*.

    >>> filled(0.5, 4), filled(0.03, 4), filled(2.0, 4)
    ('██··', '▏···', '████')
    """
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and not eighths:
        eighths = 1
    whole, rest = divmod(eighths, 8)
    return (FULL * whole + (EIGHTHS[rest] if rest else "")).ljust(width, EMPTY)


def bar_text(bar: Bar, width: int) -> Text:
    """A bar of *width* characters: letters that say what fills it if its parts have some, else blocks."""
    from rich.text import Text

    if not any(part.letter for part in bar.parts):
        colour = bar.parts[0].colour if bar.parts else ""
        return Text(filled(sum(part.share for part in bar.parts), width), style=colour)
    text, total = Text(), 0.0
    for part in bar.parts:
        total += part.share
        text.append(part.letter * (min(round(total * width), width) - len(text)), style=part.colour)
    text.append(EMPTY * (width - len(text)), style="dim")
    if bar.mark is not None and (at := round(bar.mark * width)) < width:
        text = Text.assemble(text[:at], ("|", "bold red"), text[at + 1 :])
    return text


@dataclass(frozen=True, slots=True)
class Fit:
    """A table that fits: its columns and their widths, the spaces between them, and the headers of those left out."""

    table: Table
    widths: tuple[int, ...]
    gap: int
    dropped: tuple[str, ...] = ()


def fit(table: Table, width: int) -> Fit:
    """Drop the columns of the highest priority number, the last first, until the rest fits into *width*."""
    table = table.filled()
    dropped: list[str] = []
    while True:
        for gap in (GAP, NARROW_GAP):
            widths = _widths(table, width - gap * (len(table.columns) - 1))
            if widths:
                return Fit(table, widths, gap, tuple(reversed(dropped)))
        last = max(range(len(table.columns)), key=lambda k: (table.columns[k].priority, k), default=0)
        if not table.columns or table.columns[last].priority == 0:
            return Fit(table, _squeezed(table, width), NARROW_GAP, tuple(reversed(dropped)))
        dropped.append(table.columns[last].header)
        table = table.without(last)


def _natural(table: Table, k: int) -> int:
    column = table.columns[k]
    texts = [column.header, *(row[k] for row in table.texts)]
    drawn = column.width if any(isinstance(row[k], Bar) for row in table.rows) else 0
    return max(drawn, *map(len, texts))


def _widths(table: Table, room: int) -> tuple[int, ...] | None:
    """Width of each column if all go into *room* characters; text that may break gives way first, then bars."""
    widths = [_natural(table, k) for k in range(len(table.columns))]
    for bends, least in ((_wraps, LEAST_TEXT), (_drawn, LEAST_BAR)):
        for k in range(len(widths)):
            over = sum(widths) - room
            if over > 0 and bends(table, k):
                widths[k] = max(widths[k] - over, min(widths[k], least))
    return tuple(widths) if sum(widths) <= room else None


def _wraps(table: Table, k: int) -> bool:
    return table.columns[k].wraps


def _drawn(table: Table, k: int) -> bool:
    return any(isinstance(row[k], Bar) for row in table.rows)


def _squeezed(table: Table, width: int) -> tuple[int, ...]:
    """Widths where even the columns that stay are too wide: the widest are cut, a character at a time."""
    widths = [_natural(table, k) for k in range(len(table.columns))]
    room = width - NARROW_GAP * (len(widths) - 1)
    while sum(widths) > max(room, len(widths)):
        widths[max(range(len(widths)), key=widths.__getitem__)] -= 1
    return tuple(widths)


@dataclass(frozen=True, slots=True)
class _Lines:
    """A table that finds its widths when it is printed."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        fitted = fit(self.table, options.max_width)
        if any(column.header for column in fitted.table.columns):
            yield _line([Text(column.header, style="dim") for column in fitted.table.columns], fitted)
        for k in fitted.table.shown():
            if k is None:
                yield Text("...")
                continue
            yield from _row(fitted, k)
        if names := [name for name in fitted.dropped if name]:
            yield Prose(f"[dim]not shown at this width: {', '.join(names)}")


def _row(fitted: Fit, k: int) -> Iterator[Text | RenderableType]:
    """The lines of a row, and its detail."""
    from rich.padding import Padding

    table = fitted.table
    stacks = [
        _cell(column, table.rows[k][j], table.texts[k][j], fitted.widths[j]) for j, column in enumerate(table.columns)
    ]
    for number in range(max(map(len, stacks), default=0)):
        yield _line([stack[number] if number < len(stack) else None for stack in stacks], fitted)
    if table.details and table.details[k]:
        from rich.markup import escape

        yield Padding(Prose(escape(table.details[k]), "dim"), (0, 0, 0, 4))


def _cell(column: Column, cell: object, text: str, width: int) -> list[Text]:
    """The lines of a cell."""
    from rich.text import Text

    if isinstance(cell, Bar):
        return [bar_text(cell, width)]
    style = STYLES[cell.tone] if isinstance(cell, Sign) else ""
    if column.wraps:
        lines = Text(text, style=style).divide(breaks(text, width))
        for line in lines:
            line.rstrip()
        return [part for line in lines for part in line.divide(range(width, len(line), max(width, 1)))]
    return [_cut(Text(text, style=style), width)]


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def _line(cells: Sequence[Text | None], fitted: Fit) -> Text:
    """Cells side by side as one line."""
    from rich.text import Text

    out = Text(no_wrap=True, overflow="crop")
    for k, (cell, width) in enumerate(zip(cells, fitted.widths, strict=True)):
        text = cell or Text()
        space = " " * max(width - len(text), 0)
        right = fitted.table.stands_right(k)
        out.append(" " * fitted.gap if k else "")
        out.append_text(Text.assemble(space, text) if right else Text.assemble(text, space))
    out.rstrip()
    return out


def rich_table(table: Table) -> RenderableType:
    """A table, under its title if it has one."""
    return titled(table.title, _Lines(table)) if table.title else _Lines(table)


def rich_section(section: Section) -> RenderableType:
    """A heading, and what stands under it."""
    from rich.console import Group

    note = [Prose(_plain(section.note), "dim")] if section.note else []
    return titled(section.title, Group(*note, *(shown for block in section.blocks for shown in _block(block))))


def rich_sections(sections: Iterable[Section]) -> Group:
    """Sections below each other."""
    from rich.console import Group

    return Group(*map(rich_section, sections))


def _block(block: Block) -> Iterator[RenderableType]:
    """What a terminal shows of a block: pictures are left out."""
    from rich.text import Text

    match block:
        case Paragraph(text, tone):
            yield Prose(_plain(text), STYLES[tone])
        case Bullets(lines, tone):
            for line in lines:
                yield Prose(f"[yellow]![/] {_plain(line)}" if tone == "doubtful" else f"- {_plain(line)}")
        case Verbatim(text):
            for line in text.splitlines():
                yield Text(line, overflow="fold")
        case Legend(keys, title):
            letters = ", ".join(f"{key.letter} {key.words}".strip() for key in keys)
            yield Prose(_plain(f"{title} {letters}".strip()), "dim")
        case Figures(figures):
            rows = tuple(
                (Sign(figure.name, "strong"), Sign(f"{figure.value}, {figure.note}", figure.tone)) for figure in figures
            )
            yield rich_table(Table(columns=(Column(), Column(wraps=True)), rows=rows))
        case Table():
            yield rich_table(block)


def titled(title: str, body: RenderableType) -> Group:
    """*body* under a heading."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(title, style="bold underline"), Padding(body, (0, 0, 1, 2)))


def _plain(text: str) -> str:
    """*text* as it is, whatever brackets are in it."""
    from rich.markup import escape

    return escape(text)
