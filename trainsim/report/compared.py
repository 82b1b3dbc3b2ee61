"""Runs side by side: how much they differ, and where the difference comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.report.described import plain
from trainsim.tables.blocks import Block, Paragraph, Section
from trainsim.tables.cells import Amount, Bar, Cell, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainsim.result.comparison import Comparison
    from trainsim.study.compare import SideBySide

LONGER, SHORTER = "#c0392b", "#2e8b57"
TWO_BUBBLES = (
    "The pipeline bubble is idle time up to the last pass, as a share of that window, messages in flight included; the "
    "row bubble is waiting for other stages in the whole step, so the two need not move together."
)
"""Why one may grow while the other shrinks."""


def comparison(change: Comparison) -> Section:
    """What differs in the scenario, what came out, and which part of the step is shorter or longer."""
    before, after = change.titles
    verdict = f"the step is {format_time(abs(change.seconds))} ({abs(change.ratio):.1%})"
    note = f"{verdict} {'shorter' if change.seconds < 0 else 'longer'}"
    both = Table(
        columns=(Column(), Column(before, wraps=True), Column(after, wraps=True)),
        rows=(*_outcomes(change), *_fields(change)),
    )
    blocks: list[Block] = [both, causes(change)]
    if any(part == "bubble" for part, _ in change.causes):
        blocks.append(Paragraph(TWO_BUBBLES, "quiet"))
    return Section(f"{after} against {before}", tuple(blocks), note)


def _outcomes(change: Comparison) -> Iterator[tuple[Cell, ...]]:
    """Step, MFU, bubble and memory of the two."""
    for name, unit, before, after in (
        ("step", Unit.TIME, change.step_before, change.step_after),
        ("MFU", Unit.SHARE, change.mfu_before, change.mfu_after),
        ("pipeline bubble", Unit.SHARE, change.bubble_before, change.bubble_after),
        ("peak memory", Unit.BYTES, change.memory_before, change.memory_after),
    ):
        yield name, Amount(before, unit), Amount(after, unit)


def _fields(change: Comparison) -> Iterator[tuple[Cell, ...]]:
    for path, (before, after) in change.changes.items():
        yield path, *("-" if value is None else plain(value) for value in (before, after))


def causes(change: Comparison) -> Table:
    """The parts of the breakdown that changed, the largest change first."""
    most = max((abs(seconds) for _, seconds in change.causes), default=1.0)
    rows = [
        (part, seconds, Bar.of(abs(seconds) / most, LONGER if seconds > 0 else SHORTER), Sign(change.words(part)))
        for part, seconds in change.causes
    ]
    return Table(
        columns=(Column("exposed time"), Column("change", Unit.TIME_CHANGE), Column(), Column(wraps=True)),
        rows=tuple(rows),
    )


def side_by_side(runs: SideBySide) -> list[Section]:
    """A row per run, then where each differs from the first."""
    first, piped = runs.columns[0], any(column.p2p for column in runs.columns)
    table = Table(
        columns=(
            Column("run", wraps=True),
            Column("step", Unit.TIME),
            Column("change", Unit.CHANGE, priority=1),
            Column("bubble", Unit.SHARE),
            Column("MFU", Unit.SHARE),
            Column("activations", Unit.BYTES, priority=3),
            Column("sends", Unit.BYTES, priority=2),
            Column("memory", Unit.BYTES),
            Column("fits"),
        ),
        rows=tuple(
            (
                run.name,
                run.step_time,
                None if run is first else run.step_time / first.step_time - 1.0,
                run.bubble_fraction,
                run.mfu,
                max(run.activations),
                run.p2p if piped else run.dp,
                run.memory_peak,
                Sign("yes", "good") if run.fits else Sign("no", "bad"),
            )
            for run in runs.columns
        ),
    )
    note = f"activations: fullest rank; sends: to other {'stages' if piped else 'replicas'}, per rank and step"
    refused = tuple((outcome.title, outcome.failure.reason) for outcome in runs.refused if outcome.failure)
    columns = (Column(wraps=True), Column(wraps=True))
    not_run = (Table(columns=columns, rows=refused, title="Not run"),) if refused else ()
    return [Section("Side by side", (table, *not_run), note), *map(comparison, runs.differences)]
