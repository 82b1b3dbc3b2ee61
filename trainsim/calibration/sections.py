"""What a calibration found, as a person reads it: constants, then what was measured beside what is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from trainsim.calibration.answer import Compared, Constant, median_error
from trainsim.tables.blocks import Block, Bullets, Paragraph, Section
from trainsim.tables.cells import Amount, Cell, Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from trainsim.calibration.calibration import Calibration

MOST_ROWS = 18
"""Of a table."""
COLUMNS = (
    Column("size", align="right"),
    Column("", wraps=True),
    Column("measured", align="right"),
    Column("before", align="right", priority=2),
    Column("off", Unit.CHANGE, priority=1),
    Column("after", align="right", priority=2),
    Column("off after", Unit.CHANGE),
    Column("left out", Unit.CHANGE, priority=3),
)


def sections_of(calibration: Calibration) -> list[Section]:
    """Constants; a table per group of measurements; what stayed, and remarks."""
    out = []
    if calibration.constants:
        out.append(Section("Fitted", (_constants(calibration.constants),)))
    else:
        out.append(Section("Fitted", (Paragraph("Nothing: the constants already fit as well as can be measured."),)))
    if calibration.compared:
        out.append(Section("Measured and simulated", tuple(_tables(calibration.compared)), _in_short(calibration)))
    if calibration.facts:
        out.append(Section("Also in these files", (Bullets(calibration.facts),)))
    if calibration.kept:
        by_reason: dict[str, list[str]] = {}
        for name, reason in calibration.kept:
            by_reason.setdefault(reason, []).append(name)
        lines = tuple(f"{reason}: {', '.join(names)}" for reason, names in by_reason.items())
        out.append(Section("Left as it is", (Bullets(lines),)))
    if calibration.warnings:
        out.append(Section("Mind", (Bullets(calibration.warnings, "doubtful"),)))
    return out


def _constants(constants: Sequence[Constant]) -> Table:
    rows = tuple((c.key, _amount(c, c.before), _amount(c, c.after), c.after / c.before - 1 if c.before else None)
                 for c in constants)  # fmt: skip
    change = Column("change", Unit.CHANGE, priority=1)
    return Table(
        columns=(Column("constant"), Column("before", align="right"), Column("after", align="right"), change), rows=rows
    )


def _amount(constant: Constant, value: float) -> Cell:
    return Amount(value, Unit.TIME) if constant.unit == "s" else f"{value:.4g}"


def _tables(compared: Sequence[Compared]) -> list[Block]:
    """A table per sweep over sizes, one of all the rest."""
    tables: list[Block] = []
    for has_size, rows in groupby(compared, key=lambda row: row.nbytes is not None):
        if has_size:
            tables += [_table(list(sweep), what) for what, sweep in groupby(rows, key=lambda row: row.what)]
        else:
            tables.append(_table(list(rows), ""))
    return tables


def _table(rows: Sequence[Compared], title: str) -> Table:
    """The rows, or of many as many as are read, at equal distances."""
    thinned = rows[:: -(-len(rows) // MOST_ROWS)]
    cells = tuple(
        (
            None if row.nbytes is None else Amount(row.nbytes, Unit.BYTES), "" if title else row.what,
            Amount(row.measured, Unit.TIME), Amount(row.before, Unit.TIME),
            row.error(row.before), Amount(row.after, Unit.TIME), row.error(row.after),
            None if row.left_out is None else row.error(row.left_out),
        )
        for row in thinned
    )  # fmt: skip
    fewer = f", {len(thinned)} of {len(rows)} sizes" if len(thinned) < len(rows) else ""
    return Table(columns=COLUMNS, rows=cells, title=f"{title}{fewer}").filled()


def _in_short(calibration: Calibration) -> str:
    """The medians."""
    before, after = (median_error(calibration.compared, side) for side in ("before", "after"))
    if before is None or after is None:
        return ""
    left_out = median_error(calibration.compared, "left_out")
    alone = f", {left_out:.1%} for rows left out of the fit" if left_out is not None else ""
    return f"median error {before:.1%} before, {after:.1%} after{alone}"
