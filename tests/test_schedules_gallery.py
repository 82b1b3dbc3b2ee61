"""docs/schedules.md: up to date, and every registered schedule on it."""

from __future__ import annotations

from pathlib import Path

from trainsim.report.gallery import page
from trainsim.schedules import schedules

PAGE = Path(__file__).parents[1] / "docs" / "schedules.md"


def test_the_page_is_what_its_command_writes():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m trainsim.report.gallery docs/schedules.md"


def test_every_schedule_has_its_row_and_its_chart():
    text = PAGE.read_text(encoding="utf-8")
    for name in schedules:
        assert f"\n| [{name}](#{name}) |" in text
        chart = text.split(f"\n## {name}\n")[1].split("```")[1]
        assert len(chart.strip().splitlines()) == 5
        assert "F0" in chart
