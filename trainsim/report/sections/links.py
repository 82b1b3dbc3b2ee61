"""Which links are busy, and with whose bytes."""

from __future__ import annotations

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.links import NEARLY_FULL
from trainsim.report.link_words import NOTABLE, alike, shares
from trainsim.report.page.areas import link_data
from trainsim.report.sections import PAGE, TERMINAL, section
from trainsim.tables.blocks import Bullets, Interactive, Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table


@section("full links", place=8, shown_by=(TERMINAL, PAGE), needs=Analysis)
def full_links(result: Analysis) -> Section | None:
    """The links of the network that are nearly full for a notable part of the step."""
    step = result.step_time
    lines = tuple(
        f"{alike(row)}: above {NEARLY_FULL:.0%} for {row.nearly_full_s / step:.0%} of the step; {shares(row)}"
        for row in result.link_traffic.rows
        if row.is_network and row.nearly_full_s >= NOTABLE * step
    )
    return Section("Nearly saturated network links", (Bullets(lines),)) if lines else None


@section("links", place=62, shown_by=(PAGE,), needs=Analysis)
def links(result: Analysis) -> Section | None:
    """The busiest link of each kind."""
    rows, step = result.link_traffic.rows, result.step_time
    if not rows:
        return None
    table = Table(
        columns=(
            Column("kind"),
            Column("busiest", priority=1),
            Column("alike", Unit.WHOLE, priority=2),
            Column("mean", Unit.SHARE),
            Column("peak", Unit.PERCENT),
            Column(f"above {NEARLY_FULL:.0%}", Unit.TIME, like=step),
            Column("bytes", Unit.BYTES, like=2.0**30),
            Column("traffic"),
        ),
        rows=tuple(
            (row.kind, row.name, row.equal, row.mean, row.peak, row.nearly_full_s, row.bytes, shares(row))
            for row in rows
        ),
    )
    note = "parts of what transfers reach on the link; alike: links with the same traffic; one direction, one step"
    return Section("Busiest links", (table, Interactive("areas", link_data(result))), note)
