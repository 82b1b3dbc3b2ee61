"""What goes other ways on a network that is not whole, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.analysis import Analysis
from trainsim.report.sections import PAGE, TERMINAL, section
from trainsim.tables.blocks import Bullets, Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_time

if TYPE_CHECKING:
    from trainsim.analysis.network_faults import SlowedCollective

MOST_SHOWN = 8
"""Collectives in the table."""
MOST_RANKS = 4
"""Ranks of a group that are named one by one."""


@section("network faults", place=7, shown_by=(TERMINAL, PAGE), needs=Analysis)
def network_faults(result: Analysis) -> Section | None:
    """The step with and without what is out of service, what was rerouted, and which collectives slow down."""
    found = result.network_faults
    if found is None:
        return None
    now, before = found.step_time_s, found.before_s
    change = f"{now / before - 1:+.1%}".replace("%", " %")
    said = (f"step {format_time(now)}, {format_time(before)} on the whole network ({change})", *found.rerouted)
    if not found.slowed:
        return Section("Network faults", (Bullets(said),))
    note = "times as long, for large buffers, all groups at once; worst first"
    return Section("Network faults", (Bullets(said), _table(found.slowed)), note)


def _table(slowed: tuple[SlowedCollective, ...]) -> Table:
    return Table(
        columns=(
            Column("communicator"),
            Column("collective"),
            Column("slowdown", Unit.NUMBER),
            Column("groups slowed", Unit.WHOLE, priority=1),
            Column("ranks of the worst", priority=2),
        ),
        rows=tuple(
            (one.communicator, one.operation, round(one.slowdown, 3), one.groups, _ranks(one.ranks))
            for one in slowed[:MOST_SHOWN]
        ),
    )


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) <= MOST_RANKS:
        return ", ".join(map(str, ranks))
    return f"{ranks[0]}, {ranks[1]}, ... {ranks[-1]}"
