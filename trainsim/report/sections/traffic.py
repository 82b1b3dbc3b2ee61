"""What is sent, and how long it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from trainsim.result.result import Result


@section("communication", place=60, shown_by=(PAGE,))
def traffic(result: Result) -> Section | None:
    """Bytes, operations and time of each kind of communication."""
    some = {kind: one for kind, one in result.communication.items() if one.operations}
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
                one.operations,
                one.bytes_per_rank,
                one.bytes_inter_node_per_rank,
                one.time_s,
                one.waiting_s,
                one.exposed_s,
            )
            for kind, one in some.items()
        ),
    )
    note = "mean rank, one step; late peers: time until the last rank joins; exposed: not hidden by computation"
    return Section("Communication", (table,), note)
