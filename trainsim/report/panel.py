"""One panel of a Gantt chart: lanes, boxes and texts of one window, its time axis and the legend."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

import numpy as np

from trainsim.report import glyphs
from trainsim.report.scene import GAP, PIXELS, Boxes, Note, Scene
from trainsim.report.style import CRITICAL, LOOKS
from trainsim.report.windows import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.result.result import Result

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
    "delay",
    "other",
    "chunk",
)
"""Drawn, and listed in the legend, in this order."""
BANDS, WAITS = "height of a hatched band: its share of the time", "; < 2: waits for stage 2"
"""How to read what is not zoomed in; the second part where there are other stages."""
NUMBERS, CHUNKS = "numbers: microbatch; ", "numbers: microbatch, 3.1 is number 3 on chunk 1; "
"""What is said before it, in the second form where passes go over more than one chunk."""
SMALLEST = 4.3
"""Points of a microbatch number that would not fit otherwise."""
PASSES = ("forward", "backward", "input", "weight")


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


def panel(axes: Axes, result: Result, one: Scene, part: Window, scale: float) -> bool:
    """Everything in one window; *scale* is inches per lane height. Whether the critical path is in it."""
    for z, kind in enumerate(ORDER):
        if kind in one.boxes:
            _fill(axes, one.boxes[kind], kind, 2 + z * 0.01, (part.end - part.start) / PIXELS)
    axes.set_xlim(part.start, part.end)
    axes.set_ylim(-one.height, GAP if one.detailed else 0.02)
    _lanes(axes, one, scale)
    _notes(axes, one, (WIDTH - LEFT - RIGHT) * 72 / (part.end - part.start), scale)
    seen = _critical(axes, result, one)
    time_axis(axes, part)
    axes.set_title(part.title, loc="left", parse_math=False, fontsize=10, fontweight="bold", color="#222222", pad=4)
    return seen


def _fill(axes: Axes, boxes: Boxes, kind: str, z: float, pixel: float) -> None:
    """All boxes of a kind as one path: drawn at once, and small in an SVG."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    look = LOOKS[kind]
    left, right, bottom, top = boxes
    line = 0.35 if float(np.median(right - left)) > 4 * pixel else 0.0  # edges must not hide what is narrow
    right = np.maximum(right, left + pixel) if look.hatch else right  # nor may a message vanish
    corners = np.stack([left, bottom, left, top, right, top, right, bottom, left, bottom], axis=1).reshape(-1, 2)
    codes = np.tile(np.array([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], np.uint8), len(left))
    patch = PathPatch(
        Path(corners, codes), facecolor=look.fill, edgecolor=look.ink if look.hatch else "white", linewidth=line,
        hatch=look.hatch or None, zorder=z,
    )  # fmt: skip
    axes.add_artist(patch)


def _lanes(axes: Axes, one: Scene, scale: float) -> None:
    """Names at the left: a rank by its compute lane, the thin lanes by their streams."""
    places, names = [], []
    for row in one.rows:
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


def _notes(axes: Axes, one: Scene, points_per_second: float, scale: float) -> None:
    """Texts that have room, by colour and size."""
    groups: dict[tuple[str, float, str], list[glyphs.Text]] = {}
    for note in one.notes:
        most = min(7.5 if note.kind in ("bubble", "pass") else 9.5, note.tall * scale * 72 * 0.82)
        text, points = _fit(note, (note.right - note.left) * points_per_second - 1.5, round(most, 1))
        if text:
            ink, halo = _ink(note.kind)
            groups.setdefault((ink, points, halo), []).append(((note.left + note.right) / 2, note.middle, text))
    for (ink, points, halo), texts in groups.items():
        glyphs.write(axes, texts, points=points, colour=ink, halo=halo)


def _ink(kind: str) -> tuple[str, str]:
    """Colour of a text and of the halo that keeps it readable on a hatch."""
    own = {"bubble": ("#8a8a8a", ""), "pass": ("#333333", ""), "update": ("#111111", "#ffffff")}
    look = LOOKS.get(kind, LOOKS["other"])
    return own.get(kind) or (("#111111", "#ffffff") if look.hatch else (look.ink, ""))


def _fit(note: Note, room: float, points: float) -> tuple[str, float]:
    """The longest form of a text that has room and its size in points, or nothing."""
    small = max(min(6.0, points), points * 0.72)
    if note.kind == "bubble":
        forms = [(note.text, points), (note.text.removeprefix("waits for ").replace("stage ", "< "), small)]
    else:
        names = dict.fromkeys((note.text, note.text.partition(".")[0] if note.kind in PASSES else note.text))
        sizes = (points, small, min(small, SMALLEST)) if note.text[:1].isdigit() else (points, small)
        forms = [(text, size) for text in names for size in sizes]
    if room < 3.0 or points < 4.5:
        return "", points
    return next(((text, size) for text, size in forms if glyphs.width(text, size) <= room), ("", points))


def _critical(axes: Axes, result: Result, one: Scene) -> bool:
    """The critical path as a line along the tops of the lanes that it runs through, if it does."""
    from matplotlib.collections import LineCollection

    top = {row.stage: row.top for row in reversed(one.rows) if row.stream == "compute"}
    first, last = one.window
    lines = []
    before = None
    for leg in result.critical_path.legs:
        if leg.end < first or leg.start > last or leg.stage not in top:
            before = None
            continue
        y = top[leg.stage] + 0.02
        if leg.chain.startswith("send:"):
            continue
        if before is not None:
            lines.append([before, (leg.start, y)])
        lines.append([(leg.start, y), (leg.end, y)])
        before = (leg.end, y)
    axes.add_collection(
        LineCollection(lines, colors=CRITICAL, linewidths=1.1, zorder=7, capstyle="butt"), autolim=False
    )
    return bool(lines)


def time_axis(axes: Axes, part: Window) -> None:
    """Ticks in seconds or milliseconds, with thin lines."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    unit, size = ("s", 1.0) if part.end >= 10 else ("ms", 1e-3)
    axes.xaxis.set_major_locator(MaxNLocator(12, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / size:g}"))
    axes.set_xlabel(f"time ({unit})", fontsize=8.5, color="#444444", labelpad=1, loc="right")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def legend(figure: Figure, kinds: Iterable[str], height: float, *, note: str = "", path: bool = True) -> None:
    """What was drawn, at the foot of a figure of *height* inches; *path*: the critical path too."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen = set(kinds)
    handles: list[Patch | Line2D] = [
        Patch(
            facecolor=LOOKS[kind].fill, edgecolor=LOOKS[kind].ink if LOOKS[kind].hatch else "#999999", linewidth=0.5,
            hatch=LOOKS[kind].hatch or None, label=LOOKS[kind].title,
        )
        for kind in [*ORDER[1:], *ORDER[:1]] if kind in seen
    ]  # fmt: skip
    if path:
        handles.append(Line2D([], [], color=CRITICAL, linewidth=1.4, label="critical path"))
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(LEFT / WIDTH - 0.005, 0.0), ncol=len(handles), frameon=False,
        fontsize=8.5 if len(handles) < 11 else 7.5, handlelength=1.8, handleheight=1.1,
        columnspacing=1.4 if len(handles) < 11 else 1.1,
    )  # fmt: skip
    figure.text(1 - RIGHT / WIDTH, 0.5 / height, note, fontsize=7.5, color="#777777", ha="right", va="center")
