"""The closed form beside the simulation."""

from __future__ import annotations

from trainsim.analysis.analysis import Analysis
from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Paragraph, Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table


@section("closed form", place=80, shown_by=(PAGE,), needs=Analysis)
def closed_form(result: Analysis) -> Section:
    """The step in closed form and as simulated, phase by phase."""
    both = result.estimate
    step = both.simulated
    rows = [(phase.name, phase.closed_form, phase.simulated, phase.difference) for phase in both.phases]
    table = Table(
        columns=(
            Column("phase"),
            Column("closed form", Unit.TIME, like=step),
            Column("on the critical path", Unit.TIME, like=step),
            Column("difference", Unit.TIME_CHANGE, like=step),
        ),
        rows=(*rows, ("step", both.seconds, both.simulated, both.simulated - both.seconds)),
    )
    verdict = f"the simulation is {both.difference:+.1%}: {both.explanation}"
    return Section("Closed form and simulation", (Paragraph(verdict), table))
