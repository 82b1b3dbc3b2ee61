"""A plan as a picture: where the time of each layout goes, and how full the GPUs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainsim.analysis.memory import NEARLY_FULL
from trainsim.errors import ScenarioError
from trainsim.figures import figure as new_figure
from trainsim.figures import legible
from trainsim.report.style import PARTS
from trainsim.study.planning.answer import COLUMNS
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

GIB = 2.0**30
ROOM, FULL, CAPACITY = "#9fd19b", "#f5e39a", "#c0142b"
Row = Mapping[str, Any]


def plan_chart(plan: DataFrame) -> Figure:
    """A bar for each row of a table that ``ts.plan`` gave, with the scenario as it is below them; beside it the memory
    of a GPU. Raises ScenarioError for another table."""
    if missing := [column for column in COLUMNS if column not in plan.columns]:
        raise ScenarioError(f"the table has no column {missing[0]!r}; expected the table of ts.plan with all columns")
    rows: list[Row] = [{str(key): value for key, value in row.items()} for row in plan.to_dict("records")]
    now = plan.attrs.get("now")
    if now and now["layout"] not in [row["layout"] for row in rows]:
        rows.append({**now, "layout": f"as it is: {now['layout']}"})
    if not rows:
        raise ScenarioError("the table has no rows, so there is nothing to draw")
    figure = new_figure(figsize=(13.5, 1.8 + 0.42 * len(rows)), layout="constrained")
    time, memory = figure.subplots(1, 2, sharey=True, width_ratios=[4, 1])
    _times(time, rows)
    _memory(memory, rows)
    text = legible(_title(plan))
    figure.suptitle(text.text, fontsize=12, family=list(text.family))
    return figure


def _title(plan: DataFrame) -> str:
    layouts = plan.attrs.get("layouts")
    return f"{plan.attrs.get('name', 'Plan')}: the best" + (f" of {layouts:,} layouts" if layouts else " layouts")


def _times(axis: Any, rows: Sequence[Row]) -> None:
    """Stacked parts of each step."""
    used = [part for part in PARTS if any(row["breakdown_s"].get(part) for row in rows)]
    left = [0.0] * len(rows)
    for part in used:
        widths = [row["breakdown_s"].get(part, 0.0) for row in rows]
        axis.barh(range(len(rows)), widths, left=left, color=PARTS[part], label=part, height=0.72)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for y, (end, row) in enumerate(zip(left, rows, strict=True)):
        axis.text(end, y, f" {format_time(row['step_time_s'])}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), [legible(row["layout"]).text for row in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, max(left) * 1.1)
    axis.set_xlabel("seconds of the mean rank")
    axis.legend(ncols=len(used), fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0.2)
    axis.spines[["top", "right"]].set_visible(False)


def _memory(axis: Any, rows: Sequence[Row]) -> None:
    """GiB that each layout needs, with the line of what there is."""
    needed = [row["needed_memory_bytes"] / GIB for row in rows]
    capacity = [row["capacity_bytes"] / GIB for row in rows]
    colours = [FULL if n > NEARLY_FULL * c else ROOM for n, c in zip(needed, capacity, strict=True)]
    axis.barh(range(len(rows)), needed, color=colours, height=0.72)
    for y, n in enumerate(needed):
        axis.text(0.02 * max(capacity), y, f"{n:.1f}", va="center", fontsize=8)
    for y, c in enumerate(capacity):
        axis.plot([c, c], [y - 0.5, y + 0.5], color=CAPACITY, linewidth=1)
    axis.set_xlabel("GiB needed")
    axis.set_title("line: what there is", fontsize=8, color=CAPACITY, loc="right")
    axis.tick_params(left=False)
    axis.spines[["top", "right"]].set_visible(False)
