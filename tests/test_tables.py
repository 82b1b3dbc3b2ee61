"""Tables as values: the same texts in a terminal and on a page, and every line fits."""

from __future__ import annotations

import io
import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim.tables.blocks import (
    Bullets,
    Figure,
    Figures,
    Legend,
    LegendKey,
    Markup,
    Paragraph,
    Picture,
    Section,
    Stacked,
    Verbatim,
)
from trainsim.tables.cells import Amount, Bar, Cell, Part, Sign, Unit
from trainsim.tables.page import card
from trainsim.tables.table import Column, Table, worth_a_line
from trainsim.tables.terminal import fit, rich_section, rich_table

COLUMNS = (
    Column("run"),
    Column("step", Unit.TIME),
    Column("change", Unit.CHANGE, priority=2),
    Column("memory", Unit.BYTES),
    Column("", width=20, priority=1),
    Column("verdict", wraps=True),
    Column("params", Unit.COUNT, priority=3),
)
ROWS: tuple[tuple[Cell, ...], ...] = (
    ("1f1b", 103.7, 0.0, 57.1 * 2**30, Bar.of(0.7, "#123456"), Sign("fits", "good"), 176.2e9),
    ("zb-h1", 0.0042, -0.028, 2.0**29, Bar((Part(0.2, "#111111", "A"), Part(0.3, "#222222", "B")), 0.9), None, 1e3),
    ("<b>&[bold]", None, None, None, None, "a sentence that is long enough to need more than one line", None),
)
FIGURES = Figures((Figure("mfu", "36%", "model", "bad"),))
WRITTEN = st.characters(codec="ascii", categories=["L", "N", "P"])
TABLE = Table(columns=COLUMNS, rows=ROWS, title="Runs", details=("--set a=1", "", ""))


def printed(renderable: Table | Section, width: int = 80) -> str:
    from rich.console import Console

    console = Console(width=width, no_color=True, force_terminal=False, file=io.StringIO(), highlight=False)
    shown = rich_section(renderable) if isinstance(renderable, Section) else rich_table(renderable)
    console.print(shown)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def html_cells(html: str) -> list[list[str]]:
    """The texts of the cells of all tables of a page, row by row."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html, re.DOTALL)
    return [
        [unescape(re.sub(r"<[^>]*>", "", c)).strip() for c in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows
    ]


def test_a_column_reads_in_one_unit_unless_nothing_would_be_left() -> None:
    texts = TABLE.texts
    assert [row[1] for row in texts] == ["103.70 s", "4.20 ms", ""]
    assert [row[3] for row in texts] == ["57.1 GiB", "0.5 GiB", ""]
    assert [row[2] for row in texts] == ["+0.0%", "-2.8%", ""]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_line_fits(width: int) -> None:
    assert max(map(len, printed(TABLE, width).splitlines())) <= width


def test_columns_go_by_their_priority_and_the_reader_is_told() -> None:
    assert fit(TABLE, 200).dropped == ()
    seen = [fit(TABLE, width).dropped for width in range(200, 40, -1)]
    assert [len(a) for a in seen] == sorted(len(a) for a in seen)
    assert next(dropped for dropped in seen if dropped) == ("params",)
    assert "not shown at this width: change, params" in printed(TABLE, 58)
    assert "run" in printed(TABLE, 30)


def test_a_page_has_every_number_of_a_terminal() -> None:
    text, html = printed(TABLE, 200), card([Section("", (TABLE,))])
    cells = [cell for row in html_cells(html) for cell in row if cell]
    assert cells
    assert all(cell in " ".join(text.split()) for cell in cells)
    numbers = {cell for row in TABLE.texts for cell in row if cell}
    assert numbers <= set(cells)


def test_nothing_that_a_user_wrote_is_markup() -> None:
    assert "<b>&[bold]" in printed(TABLE, 200)
    html = card([Section("<i>", (TABLE, Paragraph("<script>"), Verbatim("<pre>"), Bullets(("<li>",))))])
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;i&gt;" in html


@given(
    numbers=st.lists(st.one_of(st.none(), st.floats(-1e6, 1e15)), min_size=1, max_size=6),
    words=st.lists(
        st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=30), min_size=6, max_size=6
    ),
    unit=st.sampled_from(list(Unit)),
    width=st.integers(30, 140),
)
@settings(deadline=None, max_examples=60)
def test_random_tables_fit_and_are_the_same_twice(
    numbers: list[float | None], words: list[str], unit: Unit, width: int
) -> None:
    rows = tuple((word, number, Sign(word)) for word, number in zip(words, numbers, strict=False))
    table = Table(columns=(Column("name", wraps=True), Column("value", unit), Column("sign", priority=1)), rows=rows)
    assert all(len(line) <= width for line in printed(table, width).splitlines())
    wide = printed(table, 200)
    for cell in (text for row in html_cells(card([Section("", (table,))])) for text in row):
        assert " ".join(cell.split()) in " ".join(wide.split())


def test_long_tables_are_cut_to_the_ends_and_the_extremes() -> None:
    rows: tuple[tuple[Cell, ...], ...] = tuple((f"stage {k}", float(k == 20)) for k in range(40))
    table = Table(columns=(Column(""), Column("peak", Unit.SHARE)), rows=rows, extremes="peak")
    text = printed(table)
    assert "stage 20" in text
    assert "stage 39" in text
    assert "stage 10" not in text
    assert text.count("...") == 2
    assert "stage 10" in card([Section("", (table,))])
    assert worth_a_line([1.0] * 16) == list(range(16))


def test_a_bar_has_letters_where_its_parts_have_some_and_a_mark() -> None:
    bar = Bar((Part(0.5, "#111111", "W"), Part(0.25, "#222222", "G")), mark=0.9)
    text = printed(Table(columns=(Column("", width=20),), rows=((bar,),)))
    assert text.strip() == "W" * 10 + "G" * 5 + "···|·"


def test_columns_without_anything_are_left_out() -> None:
    table = Table(columns=(Column("a"), Column("b"), Column("c")), rows=(("x", None, ""), ("y", float("nan"), 0.0)))
    assert [column.header for column in table.filled().columns] == ["a", "c"]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 columns, but a row of 1"):
        Table(columns=(Column("a"), Column("b")), rows=(("x",),))


def test_every_block_is_shown() -> None:
    blocks = (Paragraph("words"), Bullets(("line",), "doubtful"), Verbatim("a: 1"), Markup("<svg></svg>"), TABLE)
    section = Section(
        "Title",
        (
            *blocks,
            Legend((LegendKey("#111111", "W", "weights"),)),
            Picture.of(b"png", "chart"),
            FIGURES,
            Stacked(Bar.of(1.0, "#222222")),
        ),
        note="of what",
    )
    text, html = printed(section, 100), card([section], "page")
    for words in (
        "Title",
        "of what",
        "words",
        "line",
        "a: 1",
        "103.70 s",
        "--set a=1",
        "weights",
        "mfu",
        "36%",
        "model",
    ):
        assert words in text
        assert words in html
    assert "<svg></svg>" in html
    assert "svg" not in text
    assert "data:image/png;base64,cG5n" in html


def test_amounts_have_a_unit_of_their_own() -> None:
    assert str(Amount(2.0**31, Unit.BYTES)) == "2.0 GiB"
    assert {unit: unit.format(0.5) for unit in Unit} == {
        Unit.TIME: "500.00 ms", Unit.TIME_CHANGE: "+500.00 ms", Unit.BYTES: "0 B", Unit.BANDWIDTH: "0.5 B/s",
        Unit.FLOPS: "0.5 FLOP/s", Unit.SHARE: "50.0%", Unit.PERCENT: "50%", Unit.CHANGE: "+50.0%", Unit.COUNT: "0.5",
        Unit.WHOLE: "0", Unit.NUMBER: "0.5",
    }  # fmt: skip
