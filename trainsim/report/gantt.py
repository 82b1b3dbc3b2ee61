"""The Gantt chart: one lane per stage and stream; long steps by warm-up, a steady window and cool-down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainsim.errors import InvalidPlan
from trainsim.figures import figure as new_figure
from trainsim.report import glyphs
from trainsim.report.scene import GAP, PIXELS, Boxes, Note, Scene, Stage, actors, scene
from trainsim.report.style import CRITICAL, LOOKS, seconds
from trainsim.report.windows import Window, detailed, windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainsim.result import Result

WIDTH = 15.0
LEFT, RIGHT = 1.05, 0.2
"""Inches: the figure, and its margins."""
ORDER = (
    "bubble",
    "forward",
    "backward",
    "recompute",
    "tp",
    "cp",
    "ep",
    "pp",
    "dp",
    "offload",
    "optimizer",
    "host",
    "delay",
    "other",
)
"""Drawn, and listed in the legend, in this order."""


class Layout(NamedTuple):
    """Inches per unit of height of a panel, and the height that each panel needs."""

    scale: float
    panels: tuple[float, ...]
    strip: float

    @property
    def height(self) -> float:
        return HEAD + sum(p + BETWEEN for p in self.panels) + (self.strip + BETWEEN if self.strip else 0.0) + FOOT


HEAD, BETWEEN, FOOT = 0.62, 0.62, 0.55
"""Inches: title, space under each panel for its axis, legend."""


def gantt(result: Result, ranks: Sequence[int], *, window: tuple[float, float] | None = None) -> Figure:
    """The step, or *window* (seconds) of it, of some ranks as a matplotlib figure; nothing is written to disk.

    Raises InvalidPlan for a window that is empty or outside the step.
    """
    stages = actors(result, ranks)
    parts = _windows(result, stages, window)
    scenes = [scene(result, stages, (w.start, w.end), detailed=detailed(result, stages, w.start, w.end)) for w in parts]
    layout = _layout(scenes, len(stages))
    figure = new_figure(figsize=(WIDTH, layout.height), dpi=110, facecolor="white")
    top = layout.height - HEAD
    if layout.strip:
        axes = _axes(figure, top - layout.strip, layout.strip, layout.height)
        _overview(axes, result, stages, parts)
        top -= layout.strip + BETWEEN
    for one, part, height in zip(scenes, parts, layout.panels, strict=True):
        axes = _axes(figure, top - height, height, layout.height)
        _panel(axes, result, one, part, layout.scale)
        top -= height + BETWEEN
    _title(figure, result, layout)
    _legend(figure, scenes, layout)
    return figure


def _windows(result: Result, stages: Sequence[Stage], window: tuple[float, float] | None) -> tuple[Window, ...]:
    if window is None:
        return windows(stages, result.step_time, result.bubble.warmup_s, result.bubble.cooldown_s)
    start, end = max(0.0, float(window[0])), min(result.step_time, float(window[1]))
    if not start < end:
        raise InvalidPlan(f"window {tuple(window)} shows nothing: the step is from 0 to {result.step_time:.6g} s")
    return (Window(f"{seconds(start)} to {seconds(end)}", start, end),)


def _layout(scenes: Sequence[Scene], stages: int) -> Layout:
    tallest = max(one.height for one in scenes)
    scale = float(np.clip(6.0 / tallest, 0.13, 0.62)) if len(scenes) == 1 else float(np.clip(4.4 / tallest, 0.14, 0.5))
    strip = 0.0 if len(scenes) == 1 else float(np.clip(stages * 0.07, 0.3, 1.2))
    return Layout(scale, tuple(max(0.5, one.height * scale) for one in scenes), strip)


def _axes(figure: Figure, bottom: float, height: float, total: float) -> Axes:
    axes = figure.add_axes((LEFT / WIDTH, bottom / total, (WIDTH - LEFT - RIGHT) / WIDTH, height / total))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#888888")
    axes.tick_params(axis="both", length=3, color="#888888", labelsize=8.5, labelcolor="#222222")
    return axes


def _panel(axes: Axes, result: Result, one: Scene, part: Window, scale: float) -> None:
    for z, kind in enumerate(ORDER):
        if kind in one.boxes:
            _fill(axes, one.boxes[kind], kind, 2 + z * 0.01, (part.end - part.start) / PIXELS)
    axes.set_xlim(part.start, part.end)
    axes.set_ylim(-one.height, GAP if one.detailed else 0.02)
    _lanes(axes, one, scale)
    _notes(axes, one, (WIDTH - LEFT - RIGHT) * 72 / (part.end - part.start), scale)
    _critical(axes, result, one)
    _time(axes, part)
    axes.set_title(part.title, loc="left", fontsize=10, fontweight="bold", color="#222222", pad=4)


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
    short = note.text.removeprefix("waits for ").replace("stage ", "< ")
    forms = ((note.text, points), (short if note.kind == "bubble" else note.text, max(min(6.0, points), points * 0.72)))
    if room < 3.0 or points < 4.5:
        return "", points
    return next(((text, size) for text, size in forms if glyphs.width(text, size) <= room), ("", points))


def _critical(axes: Axes, result: Result, one: Scene) -> None:
    """The critical path as a line along the tops of the lanes that it runs through."""
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


def _time(axes: Axes, part: Window) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    unit, size = ("s", 1.0) if part.end >= 10 else ("ms", 1e-3)
    axes.xaxis.set_major_locator(MaxNLocator(12, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / size:g}"))
    axes.set_xlabel(f"time ({unit})", fontsize=8.5, color="#444444", labelpad=1, loc="right")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def _overview(axes: Axes, result: Result, stages: Sequence[Stage], parts: Sequence[Window]) -> None:
    """The whole step as a strip of pixels, with frames around the windows below."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    step, columns = result.step_time, 2200
    image = np.ones((len(stages), columns, 3))
    at = (np.arange(columns) + 0.5) / columns * step
    colour = {"F": LOOKS["forward"].fill, "B": LOOKS["backward"].fill}
    for k, stage in enumerate(stages):
        one = stage.slots
        starts = np.concatenate([one.start, [piece.start for piece in stage.update]])
        ends = np.concatenate([one.end, [piece.end for piece in stage.update]])
        fills = [colour.get(work[:1], "") for work in one.work] + [LOOKS[piece.kind].fill for piece in stage.update]
        own = np.array([bool(fill) for fill in fills])  # tasks that are no passes are drawn piece by piece
        order = np.flatnonzero(own)[np.argsort(starts[own], kind="stable")]
        shade = np.array([to_rgb(fills[j]) for j in order.tolist()])
        j = np.searchsorted(starts[order], at, side="right") - 1
        inside = (j >= 0) & (at < ends[order][np.maximum(j, 0)])
        image[k, inside] = shade[j[inside]]
    axes.imshow(image, extent=(0.0, step, len(stages), 0.0), aspect="auto", interpolation="antialiased", zorder=2)
    for part in parts:
        axes.add_patch(
            Rectangle(
                (part.start, 0),
                part.end - part.start,
                len(stages),
                fill=False,
                edgecolor="#111111",
                linewidth=1.2,
                zorder=5,
                clip_on=False,
            )
        )
    axes.set_yticks([0.5, len(stages) - 0.5], [f"stage {stages[0].number}", f"stage {stages[-1].number}"])
    axes.tick_params(axis="y", length=0)
    axes.set_title("the whole step; frames are the panels below", loc="left", fontsize=9, color="#444444", pad=3)
    _time(axes, Window("", 0.0, step))
    axes.grid(visible=False)


def _title(figure: Figure, result: Result, layout: Layout) -> None:
    bubble = result.bubble
    text = (
        f"step {seconds(result.step_time)}    bubble {bubble.fraction:.1%}    MFU {result.mfu:.1%}    "
        f"warm-up {seconds(bubble.warmup_s)}, steady {seconds(bubble.steady_s)}, cool-down {seconds(bubble.cooldown_s)}"
    )
    y = 1 - 0.2 / layout.height
    figure.text(LEFT / WIDTH, y, result.name, fontsize=13, fontweight="bold", color="#111111", va="center")
    figure.text(1 - RIGHT / WIDTH, y, text, fontsize=10, color="#222222", ha="right", va="center")


def _legend(figure: Figure, scenes: Sequence[Scene], layout: Layout) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen = [kind for kind in ORDER if any(kind in one.boxes for one in scenes)]
    handles: list[Patch | Line2D] = [
        Patch(
            facecolor=LOOKS[kind].fill, edgecolor=LOOKS[kind].ink if LOOKS[kind].hatch else "#999999", linewidth=0.5,
            hatch=LOOKS[kind].hatch or None, label=LOOKS[kind].title,
        )
        for kind in [*seen[1:], *seen[:1]]
    ]  # fmt: skip
    handles.append(Line2D([], [], color=CRITICAL, linewidth=1.4, label="critical path"))
    note = (
        ""
        if all(one.detailed for one in scenes)
        else "numbers: microbatch; bands in a pass: their share of its time; < 2: waits for stage 2"
    )
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(LEFT / WIDTH - 0.005, 0.0), ncol=len(handles), frameon=False,
        fontsize=8.5, handlelength=1.8, handleheight=1.1, columnspacing=1.4,
    )  # fmt: skip
    figure.text(1 - RIGHT / WIDTH, 0.5 / layout.height, note, fontsize=7.5, color="#777777", ha="right", va="center")
