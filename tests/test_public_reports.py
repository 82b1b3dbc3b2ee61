"""What people reported in public is said, and is what is simulated within a tolerance per row."""

from pathlib import Path

import pytest

from tests.reports import Row, lines, rows

PAGE = Path(__file__).parents[1] / "docs" / "reports.md"
ROWS = rows()
USUAL = 0.15
"""The tolerance of a row."""


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_report_is_what_is_simulated(row: Row) -> None:
    assert abs(row.error(row.simulated())) <= USUAL


def test_zero_with_hooks_is_slower_than_ddp() -> None:
    """The order that its reporters found, not only the sizes."""
    seconds = {row.name: row.simulated() for row in ROWS if row.entry == "deepspeed-hooks"}
    assert min(seconds["ZeRO-1"], seconds["ZeRO-2"]) > 2 * seconds["DDP"]


@pytest.mark.slow
def test_the_page_has_the_table() -> None:
    """``python -m tests.tools.reports`` prints it."""
    text = PAGE.read_text(encoding="utf-8")
    assert [line for line in lines() if line not in text] == []
