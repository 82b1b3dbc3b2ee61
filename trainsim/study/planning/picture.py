"""A plan as a picture: where the time of each layout goes, and how full the GPUs are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainsim.figures import figure as new_figure
from trainsim.figures import legible
from trainsim.report.style import PARTS
from trainsim.units import format_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainsim.study.planning.answer import Choice, Plan

GIB = 2.0**30
ROOM, FULL = "#9fd19b", "#f5e39a"
NEARLY = 0.95


def picture(planned: Plan) -> Figure:
    """A bar for each choice, the best on top, with the scenario as it is below them; beside it the memory of a GPU."""
    rows: list[tuple[str, Choice]] = [(choice.layout.title, choice) for choice in planned.choices]
    if planned.now is not None and planned.now.layout not in [choice.layout for choice in planned.choices]:
        rows.append((f"as it is: {planned.now.layout.title}", planned.now))
    figure = new_figure(figsize=(13.5, 1.8 + 0.42 * len(rows)), layout="constrained")
    time, memory = figure.subplots(1, 2, sharey=True, width_ratios=[4, 1])
    _times(time, rows)
    _memory(memory, rows, planned.capacity)
    text = legible(f"{planned.base.name}: the best of {planned.layouts:,} layouts")
    figure.suptitle(text.text, fontsize=12, family=list(text.family))
    return figure


def _times(axis: Any, rows: list[tuple[str, Choice]]) -> None:
    """Stacked parts of each step."""
    used = [part for part in PARTS if any(choice.ran.breakdown.get(part) for _, choice in rows)]
    left = [0.0] * len(rows)
    for part in used:
        widths = [choice.ran.breakdown.get(part, 0.0) for _, choice in rows]
        axis.barh(range(len(rows)), widths, left=left, color=PARTS[part], label=part, height=0.72)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for y, (end, (_, choice)) in enumerate(zip(left, rows, strict=True)):
        axis.text(end, y, f" {format_time(choice.ran.measured.step_time)}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), [legible(title).text for title, _ in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, max(left) * 1.1)
    axis.set_xlabel("seconds of the mean rank")
    axis.legend(ncols=len(used), fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0.2)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _memory(axis: Any, rows: list[tuple[str, Choice]], capacity: float) -> None:
    """GiB that each layout needs, with the line of what there is."""
    needed = [choice.ran.measured.needed_memory / GIB for _, choice in rows]
    colours = [FULL if n > NEARLY * capacity / GIB else ROOM for n in needed]
    axis.barh(range(len(rows)), needed, color=colours, height=0.72)
    for y, n in enumerate(needed):
        axis.text(0.02 * capacity / GIB, y, f"{n:.1f}", va="center", fontsize=8)
    axis.axvline(capacity / GIB, color="#c0142b", linewidth=1)
    axis.set_xlabel(f"GiB needed, of {capacity / GIB:.0f}")
    axis.tick_params(left=False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
