"""What is sent, and how long it takes."""

from __future__ import annotations

from trainsim.analysis.analysis import Analysis
from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table


@section("communication", place=60, shown_by=(PAGE,), needs=Analysis)
def traffic(result: Analysis) -> Section | None:
    """Bytes, operations and time of each kind of communication."""
    some = {kind: kind_traffic for kind, kind_traffic in result.communication.items() if kind_traffic.operations}
    if not some:
        return None
    step = result.step_time
    table = Table(
        columns=(
            Column("kind"),
            Column("operations", Unit.WHOLE, priority=2),
            Column("sent", Unit.BYTES, like=2.0**30),
            Column("inter-node", Unit.BYTES, like=2.0**30, priority=1),
            Column("time", Unit.TIME, like=step),
            Column("late peers", Unit.TIME, like=step),
            Column("exposed", Unit.TIME, like=step),
        ),
        rows=tuple(
            (
                kind,
                kind_traffic.operations,
                kind_traffic.bytes_per_rank,
                kind_traffic.bytes_inter_node_per_rank,
                kind_traffic.time_s,
                kind_traffic.waiting_s,
                kind_traffic.exposed_s,
            )
            for kind, kind_traffic in some.items()
        ),
    )
    note = "averaged over ranks, one step; late peers: time until the last rank joins; exposed: not overlapped"
    return Section("Communication", (table,), note)
