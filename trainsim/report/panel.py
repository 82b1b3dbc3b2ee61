"""One panel of a Gantt chart: lanes, boxes and texts of one window, its time axis and the legend."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainsim.report import lettering
from trainsim.report.canvas import GAP, Boxes, Scene
from trainsim.report.notes import write_notes
from trainsim.report.style import CRITICAL, LOOKS
from trainsim.report.windows import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from trainsim.analysis.critical import CriticalPath

WIDTH = 15.0
LEFT, RIGHT = 1.05, 0.2
"""Inches: the figure, and its margins."""
ORDER = (
    "bubble",
    "forward",
    "backward",
    "input",
    "weight",
    "recompute",
    "exposed",
    "tp",
    "cp",
    "ep",
    "pp",
    "gather",
    "dp",
    "offload",
    "optimizer",
    "host",
    "copy",
    "delay",
    "other",
    "prefill",
    "decode",
    "scoring",
    "chunk",
)
"""Drawn, and listed in the legend, in this order."""
BANDS, WAITS = "height of a band: its share of the time", "; < 2: waits for stage 2"
"""How to read what is not zoomed in; the second part where there are other stages."""
NUMBERS, CHUNKS = "numbers: microbatch; ", "numbers: microbatch, 3.1 is number 3 on chunk 1; "
"""What is said before it, in the second form where passes go over more than one chunk."""
TURNS = "two passes at once: above the kernels, whose turn it is; lower edge of a box: the pass whose data travel"
"""How to read the kernels of passes that run in pairs."""
WIDE = 4.0
"""Pixels from which on a box has an edge and a hatch."""
LEGEND_ROW = 0.2
"""Inches of a row of the legend."""


def add_axes(figure: Figure, bottom: float, height: float, total: float) -> Axes:
    """Axes of *height* inches whose lower edge is *bottom* above that of a figure *total* high."""
    axes = figure.add_axes((LEFT / WIDTH, bottom / total, (WIDTH - LEFT - RIGHT) / WIDTH, height / total))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#888888")
    axes.tick_params(axis="both", length=3, color="#888888", labelsize=8.5, labelcolor="#222222")
    return axes


def how_to_read(kinds: Container[str], stages: int) -> str:
    """The note beside the legend of a chart that shows *kinds* on so many stages."""
    return (CHUNKS if "chunk" in kinds else NUMBERS) + BANDS + (WAITS if stages > 1 else "")


def panel(axes: Axes, drawn: Scene, part: Panel, scale: float, *, path: CriticalPath | None = None) -> bool:
    """Everything in one window; *scale* is inches per lane height. Whether the critical *path* is in it."""
    for z, look in enumerate(ORDER):
        if look in drawn.compute:
            _fill(axes, drawn.compute[look], look, 2 + z * 0.01, drawn.pixel)
        if look in drawn.beside:
            _fill(axes, _visible(drawn.beside[look], drawn.pixel), look, 2 + z * 0.01, drawn.pixel)
    axes.set_xlim(part.start, part.end)
    axes.set_ylim(-drawn.height, GAP if drawn.detailed else 0.02)
    _lanes(axes, drawn, scale)
    write_notes(axes, drawn.notes, (WIDTH - LEFT - RIGHT) * 72 / (part.end - part.start), scale)
    seen = path is not None and _critical(axes, path, drawn)
    time_axis(axes, part)
    axes.set_title(part.title, loc="left", parse_math=False, fontsize=10, fontweight="bold", color="#222222", pad=4)
    return seen


def _visible(boxes: Boxes, pixel: float) -> Boxes:
    """Boxes of a thin lane, none narrower than a pixel: no message may vanish."""
    return boxes._replace(right=np.maximum(boxes.right, boxes.left + pixel))


def _fill(axes: Axes, boxes: Boxes, look: str, z: float, pixel: float) -> None:
    """All boxes of a look: the wide ones as one path, drawn at once and small in an SVG, and the narrow ones."""
    wide = boxes.right - boxes.left > WIDE * pixel
    for which, as_wide in ((wide, True), (~wide, False)):
        if which.any():
            _draw(axes, Boxes(*(column[which] for column in boxes)), look, z, wide=as_wide)


def _draw(axes: Axes, boxes: Boxes, look: str, z: float, *, wide: bool) -> None:
    """Boxes as one path: *wide* ones with edges and hatches, which would hide what is narrow."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    style, (left, right, bottom, top) = LOOKS[look], boxes
    corners = np.stack([left, bottom, left, top, right, top, right, bottom, left, bottom], axis=1).reshape(-1, 2)
    codes = np.tile(np.array([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], np.uint8), len(left))
    patch = PathPatch(
        Path(corners, codes), facecolor=style.fill if wide or not style.hatch else _between(style.fill, style.ink),
        edgecolor=style.ink if style.hatch else "white", linewidth=0.35 if wide else 0.0,
        hatch=(style.hatch or None) if wide else None, zorder=z,
    )  # fmt: skip
    axes.add_artist(patch)


def _between(fill: str, ink: str) -> tuple[float, float, float]:
    """How a hatch looks where it is too narrow to be seen."""
    from matplotlib.colors import to_rgb

    red, green, blue = ((2 * a + b) / 3 for a, b in zip(to_rgb(fill), to_rgb(ink), strict=True))
    return red, green, blue


def _lanes(axes: Axes, drawn: Scene, scale: float) -> None:
    """Names at the left: a rank by its compute lane, the thin lanes by their streams."""
    places, names = [], []
    for row in drawn.rows:
        points = (row.top - row.bottom) * scale * 72
        if row.stream == "compute":
            places.append((row.bottom + row.top) / 2)
            names.append(f"stage {row.stage}" + (f"\nrank {row.rank}" if points > 22 else ""))
        elif points > 5.5:
            axes.text(
                -0.004, (row.bottom + row.top) / 2, row.stream, transform=axes.get_yaxis_transform(), ha="right",
                va="center", fontsize=min(7.0, points * 0.8), color="#777777",
            )  # fmt: skip
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0, pad=16)


def _critical(axes: Axes, path: CriticalPath, drawn: Scene) -> bool:
    """The critical path as a line along the tops of the lanes that it runs through, if it does."""
    from matplotlib.collections import LineCollection

    top = {row.stage: row.top for row in reversed(drawn.rows) if row.stream == "compute"}
    first, last = drawn.window
    lines = []
    before = None
    for leg in path.legs:
        if leg.end < first or leg.start > last or leg.stage not in top:
            before = None
            continue
        y = top[leg.stage] + 0.02
        if leg.sends:
            continue
        if before is not None:
            lines.append([before, (leg.start, y)])
        lines.append([(leg.start, y), (leg.end, y)])
        before = (leg.end, y)
    axes.add_collection(
        LineCollection(lines, colors=CRITICAL, linewidths=1.1, zorder=7, capstyle="butt"), autolim=False
    )
    return bool(lines)


def time_axis(axes: Axes, part: Panel) -> None:
    """Ticks in seconds or milliseconds, with thin lines."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    unit, size = ("s", 1.0) if part.end >= 10 else ("ms", 1e-3)
    axes.xaxis.set_major_locator(MaxNLocator(12, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / size:g}"))
    axes.set_xlabel(f"time ({unit})", fontsize=8.5, color="#444444", labelpad=1, loc="right")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def legend(figure: Figure, looks: Iterable[str], height: float, *, note: str = "", path: bool = True) -> None:
    """What was drawn, at the foot of a figure of *height* inches, in as many rows as it needs; *path*: the critical
    path too."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen = set(looks)
    handles: list[Patch | Line2D] = [
        Patch(
            facecolor=LOOKS[kind].fill, edgecolor=LOOKS[kind].ink if LOOKS[kind].hatch else "#999999", linewidth=0.5,
            hatch=LOOKS[kind].hatch or None, label=LOOKS[kind].title,
        )
        for kind in [*ORDER[1:], *ORDER[:1]] if kind in seen
    ]  # fmt: skip
    if path:
        handles.append(Line2D([], [], color=CRITICAL, linewidth=1.4, label="critical path"))
    rows = _rows([lettering.width(str(handle.get_label()), 8.5) + 34.5 for handle in handles])
    for k, some in enumerate(rows):
        legend_row(figure, [handles[j] for j in some], (0.1 + (len(rows) - 1 - k) * LEGEND_ROW) / height)
    above = (0.3 + LEGEND_ROW * len(rows)) / height
    figure.text(1 - RIGHT / WIDTH, above, note, fontsize=7.5, color="#777777", ha="right", va="center")


def legend_row(figure: Figure, handles: Sequence[Patch | Line2D], bottom: float) -> None:
    """One row of a legend, *bottom* (0 to 1) above the lower edge of the figure."""
    figure.legend(
        handles=handles, loc="lower left", ncol=len(handles), frameon=False, fontsize=8.5, handlelength=1.8,
        bbox_to_anchor=(LEFT / WIDTH - 0.005, bottom), handleheight=1.1, columnspacing=1.4, borderaxespad=0.0,
    )  # fmt: skip


def _rows(widths: Sequence[float]) -> list[list[int]]:
    """Entries of a legend, so wide in points, filled into rows."""
    rows, free = [list[int]()], (WIDTH - LEFT - RIGHT) * 72
    for k, width in enumerate(widths):
        if width > free and rows[-1]:
            rows.append([])
            free = (WIDTH - LEFT - RIGHT) * 72
        rows[-1].append(k)
        free -= width
    return rows
