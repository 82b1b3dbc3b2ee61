"""Sections of reports: each is shown in 80 columns, and a page has the same numbers as a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import trainsim as ts
from tests.runs import result
from tests.test_tables import html_cells, printed
from tests.traces import Shape
from trainsim.contracts.measured import from_spans, span_columns
from trainsim.contracts.measured_trace import MarkedStep, MeasuredTrace
from trainsim.report.compared import comparison, side_by_side
from trainsim.report.memory_table import memory_sections
from trainsim.report.sections import CARD, PAGE, TERMINAL, report, sections
from trainsim.result.measured_result import MeasuredResult
from trainsim.tables.blocks import Block, Interactive, Markup, Picture, Section
from trainsim.tables.page import card
from trainsim.tables.table import Table

ROLLOUT = {"prompt_length": 64, "response_length": 64, "gpu_memory_utilization": 0.5, "scored_by": 1}


@cache
def runs() -> dict[str, ts.Result]:
    """Runs that have something to say under every heading."""
    return {
        "pipeline": result(Shape(stages=3, microbatches=4, tp=0.2, recompute=0.5, latency=0.1, reduce=0.7), "pipeline"),
        "one stage": result(Shape(stages=1, microbatches=2, reduce=0.3, replicas=2), "one stage"),
        "too large": result(Shape(stages=2, activation=40e9), "too large"),
        "many stages": result(Shape(stages=24, microbatches=4), "many stages"),
        "steps": compared().replace({"simulation.steps": 3}).run(),
        "rollout": compared({"training.rollout": ROLLOUT}).run(),
        "full links": ts.Scenario.load("mixtral_8x7b").replace({"simulation.detail": "block"}).run(),
        "network faults": ts.Scenario.load("failed_uplink").replace({"simulation.detail": "block"}).run(),
    }


def compared(changes: dict[str, Any] | None = None) -> ts.Scenario:
    return ts.Scenario.load("quickstart").replace({"simulation.detail": "block", **(changes or {})})


@cache
def measured() -> MeasuredResult:
    """A step as if it had been measured."""
    spans = runs()["pipeline"].trace
    trace = from_spans(span_columns(spans), stages=[0, 1, 2], messages=spans.messages)
    marks = (MarkedStep(3, 30.0, True), MarkedStep(4, 31.0, False))
    return MeasuredResult(
        measured=MeasuredTrace(
            name="measured", trace=trace, files=("a.json",), rank_numbers=(0, 8, 16), part="step 3", marked=marks,
            warnings=("a.json ends early",),
        )
    )  # fmt: skip


def built(name: str) -> list[Section]:
    """What a section says of each run that it can be made from."""
    every = [run for run in (*runs().values(), measured()) if isinstance(run, sections[name].needs)]
    return [section for run in every if (section := sections[name].build(run)) is not None]


BUILDERS: dict[str, Callable[[], list[Section]]] = {
    **{name: (lambda name=name: built(name)) for name in sections},  # type: ignore[misc]
    "memory in detail": lambda: [one for run in runs().values() for one in memory_sections(run)],
    "comparison": lambda: [comparison(runs()["steps"] - runs()["one stage"])],
    "side by side": lambda: side_by_side(ts.compare([compared(), compared({"pipeline.schedule": "zb-h1"})])),
}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("width", [80, 120])
def test_every_line_fits(name: str, width: int) -> None:
    some = BUILDERS[name]()
    assert some
    for section in some:
        lines = printed(section, width).splitlines()
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if re.match(r"\s*(GiB|MiB|s|ms|%)\b", line)], "a number apart from its unit"


@pytest.mark.parametrize("name", BUILDERS)
def test_a_page_says_the_same_numbers_as_a_terminal(name: str) -> None:
    for section in BUILDERS[name]():
        tables = [block for block in every_block(section) if isinstance(block, Table)]
        text = " ".join(printed(Section(section.title, tuple(map(uncut, tables))), 400).split())
        cells = [" ".join(cell.split()) for row in html_cells(card([section])) for cell in row if cell]
        assert all(cell in text for cell in cells)
        filled = (row for table in tables for row in table.filled().texts)
        assert cells == [" ".join(cell.split()) for row in filled for cell in row if cell]


def every_block(section: Section) -> list[Block]:
    """The blocks of a section, and what stands for its interactive ones where no script runs."""
    still = [part for block in section.blocks if isinstance(block, Interactive) for part in block.still]
    return [*section.blocks, *still]


def uncut(table: Table) -> Table:
    """The table with all its rows in a terminal too."""
    from dataclasses import replace

    return replace(table, extremes="")


@pytest.mark.parametrize("name", sections)
def test_a_section_is_shown_to_somebody_and_only_a_page_has_pictures(name: str) -> None:
    entry = sections[name]
    assert entry.shown_by <= {TERMINAL, PAGE, CARD}
    assert entry.shown_by
    assert entry.build.__doc__
    blocks = [b for section in built(name) for b in section.blocks]
    pictures = [b for b in blocks if isinstance(b, Markup | Picture | Interactive)]
    assert not pictures or TERMINAL not in entry.shown_by


def test_sections_stand_in_their_order_and_none_shares_a_place() -> None:
    places = [one.place for one in sections.values()]
    assert len(set(places)) == len(places)
    titles = [section.title for section in report(runs()["pipeline"], TERMINAL)]
    assert titles[:3] == ["pipeline", "Where the time goes", "Memory"]
    assert set(titles) < {section.title for section in report(runs()["pipeline"], PAGE)}


def test_a_comparison_says_that_there_are_two_bubbles() -> None:
    """A share of the pipeline's window and seconds of the whole step may move apart: 13.2 -> 13.8 % and -4.67 s."""
    text = " ".join(printed(comparison(runs()["many stages"] - runs()["pipeline"])).split())
    assert "pipeline bubble" in text
    assert "the two need not move together" in text


def test_one_wait_has_one_number() -> None:
    """No other table than that of waits gives seconds of waiting for a stage by its cause."""
    page = card(report(runs()["pipeline"], PAGE))
    headers = re.findall(r"<th[^>]*>([^<]*)</th>", page)
    assert headers.count("for") == 1
    assert not [header for header in headers if header.startswith("for ")]
