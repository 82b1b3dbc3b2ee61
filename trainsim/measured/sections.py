"""A comparison with a measured step as sections: the two steps, what would mend the difference, each collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainsim.report.compared import LONGER, SHORTER
from trainsim.tables.blocks import Block, Bullets, Paragraph, Section
from trainsim.tables.cells import Bar, Cell, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_bytes, format_time

if TYPE_CHECKING:
    from trainsim.measured.collective_rows import CollectiveUse
    from trainsim.measured.comparison import MeasuredComparison

MOST_ROWS = 24
"""Collectives in the table."""


def comparison_sections(both: MeasuredComparison) -> list[Section]:
    """Where the two differ, most of all first."""
    sections = [_parts(both)]
    if both.simulated and both.mendings:
        sections.append(_mendings(both))
    if any(both.collectives):
        sections.append(_collectives(both))
    notes = [*([both.note] if both.note else []), *both.after.warnings]
    return [*sections, *([Section("Warnings", (Bullets(tuple(notes), "doubtful"),))] if notes else [])]


def _parts(both: MeasuredComparison) -> Section:
    before, after = both.parts
    step = max(both.before.step_time, both.after.step_time)
    every = sorted(
        dict.fromkeys([*before, *after]), key=lambda part: -abs(after.get(part, 0.0) - before.get(part, 0.0))
    )
    most = max((abs(after.get(part, 0.0) - before.get(part, 0.0)) for part in every), default=0.0) or 1.0
    rows: list[tuple[Cell, ...]] = []
    for part in every:
        ours, theirs = before.get(part, 0.0), after.get(part, 0.0)
        bar = Bar.of(abs(theirs - ours) / most, LONGER if theirs > ours else SHORTER)
        rows.append((str(part), ours, theirs, theirs - ours, bar))
    rows.append(("step", both.before.step_time, both.after.step_time, both.difference, None))
    table = Table(
        columns=(
            Column("exposed time", wraps=True),
            Column(both.names[0], Unit.TIME, like=step, wraps=not both.simulated),
            Column(both.names[1], Unit.TIME, like=step, wraps=not both.simulated),
            Column("difference", Unit.TIME_CHANGE, like=step),
            Column(width=16, priority=1),
        ),
        rows=tuple(rows),
    )
    ratio = both.difference / both.before.step_time if both.before.step_time else 0.0
    words = "longer" if both.difference >= 0 else "shorter"
    note = f"the step is {format_time(abs(both.difference))} ({abs(ratio):.1%}) {words}; mean rank, adds up to the step"
    return Section(f"{both.after.name} beside {both.before.name}", (_who(both), table), note)


def _who(both: MeasuredComparison) -> Paragraph:
    ranks = ", ".join(map(str, both.after.measured.rank_numbers[:16]))
    more = " and more" if len(both.after.measured.rank_numbers) > 16 else ""
    gpu = f" on {both.after.measured.gpu}" if both.after.measured.gpu else ""
    return Paragraph(f"measured{gpu}: {both.after.measured.part}, ranks {ranks}{more}", "quiet")


def _mendings(both: MeasuredComparison) -> Section:
    table = Table(
        columns=(Column("part"), Column("difference", Unit.TIME_CHANGE), Column("what would mend it", wraps=True)),
        rows=tuple((one.part, one.seconds, Sign(one.words)) for one in both.mendings),
    )
    blocks: list[Block] = [table]
    if both.first_key:
        files = " ".join(both.after.measured.files[:2]) + (" ..." if len(both.after.measured.files) > 2 else "")
        blocks.append(
            Paragraph(
                f"The largest is {both.first_key}. To fit it to the measurements themselves: trainsim calibrate {files}"
                " --base the GPU, topology or framework of the scenario.",
                "quiet",
            )
        )
    return Section("What would mend it", tuple(blocks), "multiply the value of the scenario's key by the factor")


def _collectives(both: MeasuredComparison) -> Section:
    before, after = both.collectives
    every = dict.fromkeys([*before, *after])

    def longest(key: object) -> float:
        return -max(of[key].seconds if key in of else 0.0 for of in (before, after))  # type: ignore[index]

    rows = []
    for key in sorted(every, key=longest)[:MOST_ROWS]:
        ours, theirs = before.get(key), after.get(key)
        size = f" of {key.size}" if key.size else ""
        what = f"{key.kind} {key.operation}{size}, {format_bytes(key.nbytes)}"
        rows.append((what, *_cells(ours, theirs, key.nbytes)))
    table = Table(
        columns=(
            Column("collective", wraps=True),
            Column("number", align="right"),
            Column("time", align="right"),
            Column("late peers", align="right", priority=2),
            Column("GB/s", align="right"),
        ),
        rows=tuple(rows),
    )
    first, second = both.names
    note = f"per rank and step, {first} / {second}; GB/s: buffer size over mean time; times may overlap"
    return Section("Collectives and messages", (table,), note)


def _cells(ours: CollectiveUse | None, theirs: CollectiveUse | None, nbytes: float) -> Iterator[Cell]:
    both = (ours, theirs)
    yield " / ".join("-" if use is None else f"{use.count:.4g}" for use in both)
    yield " / ".join("-" if use is None else format_time(use.seconds) for use in both)
    yield " / ".join("-" if use is None else format_time(use.late) for use in both)
    yield " / ".join("-" if use is None or not nbytes else f"{use.bandwidth(nbytes) / 1e9:.3g}" for use in both)
