"""docs/schedules.md: up to date, and every registered schedule on it."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from trainsim.report.gallery import example, page
from trainsim.report.order_chart import order_chart, order_scene
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


@pytest.mark.parametrize("name", sorted(schedules))
def test_every_schedule_can_be_drawn_and_its_area_is_its_time(name):
    step, slices = example(name)
    drawn = order_scene(step, slices=slices)
    area = {look: boxes.area for look, boxes in drawn.compute.items() if look != "chunk"}
    assert sum(area.values()) == pytest.approx(len(step.order.rows) * step.makespan)
    assert area.get("bubble", 0.0) == pytest.approx(len(step.order.rows) * step.makespan - sum(step.busy))
    order_chart(name, step, slices=slices).savefig(BytesIO(), format="png", dpi=40)


def test_two_chunks_of_a_rank_are_told_apart():
    step, slices = example("zb-v")
    drawn = order_scene(step, slices=slices)
    later = sum(cell.stage >= 4 for row in step.order.rows for cells in row for cell in cells)
    assert len(drawn.compute["chunk"].left) == later
