"""What would make a step fit in memory, as a section for a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainsim.study.trial import verdict
from trainsim.tables.blocks import Block, Paragraph, Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from trainsim.study.what_fits import Fitting, Tried

LISTED, NEAREST = 10, 6
"""Changes that are listed: of those that fit, of those that come near."""


def fitting(tried_ways: Fitting) -> Section:
    """Changes with which all fits, then those that take less, and why others are not among them."""
    now = tried_ways.now
    blocks: list[Block] = []
    if tried_ways.fitting:
        blocks.append(_table(tried_ways.fitting[:LISTED], commands=True))
    elif now.fits:
        blocks.append(Paragraph("nothing that was tried takes less"))
    else:
        blocks.append(Paragraph("nothing that was tried fits, not even together", "strong"))
    if tried_ways.smaller:
        title = "Less, but too much" if tried_ways.fitting else "The nearest"
        blocks.append(_table(tried_ways.smaller[:NEAREST], commands=not tried_ways.fitting, title=title))
    if tried_ways.useless:
        blocks.append(Paragraph(f"no less memory: {'; '.join(tried.title for tried in tried_ways.useless)}", "quiet"))
    if tried_ways.refused:
        blocks.append(_refused(tried_ways.refused))
    note = "each was run; the change of the step is per token: for as many sequences"
    return Section("What would free memory" if now.fits else "What would make it fit", tuple(blocks), note)


def _table(rows: Sequence[Tried], *, commands: bool, title: str = "") -> Table:
    """A row per change, and under it what is full beside the GPUs; with *commands* what to write for it too."""
    details = [" ".join(filter(None, (tried.problem, tried.trial.command if commands else ""))) for tried in rows]
    cells = []
    for tried in rows:
        ran = tried.ran
        assert ran
        full = ran.peak_memory / ran.capacity
        cells.append((tried.title, ran.peak_memory, full, ran.step_time, tried.longer, verdict(ran)))
    columns = (
        Column("change", wraps=True),
        Column("memory", Unit.BYTES),
        Column("full", Unit.PERCENT),
        Column("step", Unit.TIME),
        Column("", Unit.CHANGE),
        Column(),
    )
    return Table(columns=columns, rows=tuple(cells), details=tuple(details), title=title)


def _refused(tried: Sequence[Tried]) -> Table:
    """Changes that do not go together with the rest, those of one reason together."""
    titles: dict[str, list[str]] = {}
    for refused in tried:
        titles.setdefault(refused.problem, []).append(refused.title)
    columns = (Column(wraps=True), Column(wraps=True))
    rows = tuple(("; ".join(names), reason) for reason, names in titles.items())
    return Table(columns=columns, rows=rows, title="Not possible here")
