"""Measured against simulated, before and after, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainsim.calibration.answer import Compared
from trainsim.calibration.calibration import Calibration
from trainsim.figures import figure, legible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED, BEFORE, AFTER = "#222222", "#c46a1b", "#1f6fb2"
MOST_PANELS = 9
SMALLEST, LARGEST = -0.5, 0.5
"""How far the axis of errors goes at least."""


def draw(calibration: Calibration) -> Figure:
    """A panel per sweep over sizes (time over size), and one of everything else (error by measurement)."""
    panels = _panels(calibration.compared)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    picture = figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    axes: Any = picture.subplots(rows, columns, squeeze=False)
    for axis, (title, compared) in zip(axes.flat, panels, strict=False):
        (_sweep if compared[0].nbytes is not None else _errors)(axis, compared)
        axis.set_title(legible(title).text, fontsize=9)
        axis.grid(alpha=0.25, linewidth=0.5)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_axis_off()
    axes.flat[0].legend(fontsize=8, frameon=False)
    return picture


def _panels(compared: Sequence[Compared]) -> list[tuple[str, list[Compared]]]:
    by_title: dict[str, list[Compared]] = {}
    for row in compared:
        by_title.setdefault(row.what if row.nbytes is not None else "all that has no size", []).append(row)
    panels = list(by_title.items())[:MOST_PANELS]
    return [(f"{title} (of {len(by_title)} groups)" if len(by_title) > MOST_PANELS and k == 0 else title, rows)
            for k, (title, rows) in enumerate(panels)]  # fmt: skip


def _sweep(axis: Any, rows: Sequence[Compared]) -> None:
    rows = sorted(rows, key=lambda row: row.nbytes or 0.0)
    sizes = [row.nbytes for row in rows]
    axis.plot(sizes, [row.before * 1e3 for row in rows], color=BEFORE, linewidth=1.2, linestyle="--", label="before")
    axis.plot(sizes, [row.after * 1e3 for row in rows], color=AFTER, linewidth=1.6, label="after")
    used, unused = [row for row in rows if row.counts], [row for row in rows if not row.counts]
    axis.plot([r.nbytes for r in used], [r.measured * 1e3 for r in used], "o", color=MEASURED, ms=3, label="measured")
    if unused:
        hollow = {"color": MEASURED, "ms": 3, "mfc": "none", "label": "measured, left out"}
        axis.plot([r.nbytes for r in unused], [r.measured * 1e3 for r in unused], "o", **hollow)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("bytes", fontsize=8)
    axis.set_ylabel("ms", fontsize=8)
    axis.tick_params(labelsize=7)


def _errors(axis: Any, rows: Sequence[Compared]) -> None:
    places = list(range(len(rows)))
    for side, colour, mark in (("before", BEFORE, "x"), ("after", AFTER, "o")):
        errors = [row.error(getattr(row, side)) * 100 for row in rows]
        axis.plot(errors, places, mark, color=colour, ms=4, label=side)
    if any(row.left_out is not None for row in rows):
        pairs = [(row.error(row.left_out) * 100, k) for k, row in enumerate(rows) if row.left_out is not None]
        axis.plot(*zip(*pairs, strict=True), "o", color=AFTER, ms=6, mfc="none", label="left out of the fit")
    axis.axvline(0.0, color=MEASURED, linewidth=0.8)
    few = len(rows) <= 24
    axis.set_yticks(places if few else [], [legible(row.what[:40]).text for row in rows] if few else [])
    axis.invert_yaxis()
    axis.set_xlabel("simulated over measured, % off", fontsize=8)
    axis.tick_params(labelsize=7)
