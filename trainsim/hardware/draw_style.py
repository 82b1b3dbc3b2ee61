"""
Colours, lines and boxes of the pictures of machines: distinct in colour and in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]

FILL = {  # device -> (face, text); faces differ in lightness
    "gpu": ("#1e6b3a", "white"),
    "nvswitch": ("#a8d08d", "black"),
    "pcie": ("#ffe3b3", "black"),
    "host": ("#5f7a94", "white"),
    "nic": ("#6a3d8f", "white"),
    "nvme": ("#ececec", "black"),
    "leaf": ("#c9b3dd", "black"),
    "spine": ("#8660ab", "white"),
    "core": ("#3f2360", "white"),
    "node": ("#f5f5f0", "black"),
}
LINE = {  # family -> (colour, dashes)
    "nvlink": ("#3f9142", "solid"),
    "pcie": ("#e08a00", "solid"),
    "c2c": ("#00838f", "solid"),
    "socket": ("#37474f", (0, (2, 1.5))),
    "network": ("#6a3d8f", "solid"),
}
INK = "#222222"


def width(bandwidth: float) -> float:
    """Line width in points, about the root of the bandwidth (1.2 at 25 GB/s)."""
    return float(min(max(0.5, 0.8 * (bandwidth / 10e9) ** 0.45), 4.5))


def fitting(label: str, room: float) -> float:
    """The font size at which *label* fits into a width of *room* points, at most 8."""
    return min(8.0, room * 0.92 / (0.62 * max(map(len, label.split("\n")))))


def box(axes: Axes, at: Point, label: str, kind: str, *, size: Point, font: float) -> None:
    """One device."""
    from matplotlib.patches import FancyBboxPatch

    face, text = FILL[kind]
    corner = (at[0] - size[0] / 2, at[1] - size[1] / 2)
    style = "round,pad=0,rounding_size=0.06" if kind in ("gpu", "node") else "square,pad=0"
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, fc=face, ec=INK, lw=0.7, zorder=3))
    axes.text(*at, label, ha="center", va="center", color=text, fontsize=font, zorder=4)


def line(axes: Axes, a: Point, b: Point, family: str, *, bandwidth: float, alpha: float = 0.9) -> None:
    """One duplex link."""
    colour, dashes = LINE[family]
    axes.plot(*zip(a, b, strict=True), color=colour, ls=dashes, lw=width(bandwidth), alpha=alpha, zorder=1)


def curve(axes: Axes, way: tuple[Point, Point, Point], family: str, *, bandwidth: float, double: bool = False) -> None:
    """One duplex link from the first to the last point, which bows towards the one between; or two in parallel."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    colour, dashes = LINE[family]
    path, thick = Path(way, [Path.MOVETO, Path.CURVE3, Path.CURVE3]), width(bandwidth)
    strokes = [(2.6 * thick, colour, 1.0), (0.9 * thick, "white", 1.1)] if double else [(thick, colour, 1.0)]
    for stroke, shade, above in strokes:
        look = {"ls": dashes, "lw": stroke, "alpha": None if double else 0.9, "zorder": above, "capstyle": "butt"}
        axes.add_patch(PathPatch(path, fc="none", ec=shade, **look))


def note(axes: Axes, at: Point, text: str, *, font: float = 8.5, ha: str = "center", bold: bool = False) -> None:
    """Words beside the picture."""
    weight = "bold" if bold else "normal"
    axes.text(*at, text, ha=ha, va="center", fontsize=font, color=INK, weight=weight, zorder=5)


def legend(axes: Axes, devices: Sequence[tuple[str, str]], links: Sequence[tuple[str, float, str]]) -> None:
    """Device kinds (kind, words) and links (family, bandwidth, words), to the right of the picture."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [Patch(fc=FILL[kind][0], ec=INK, lw=0.7, label=text) for kind, text in devices]
    handles += [
        Line2D([], [], color=LINE[family][0], ls=LINE[family][1], lw=width(bandwidth), label=text)
        for family, bandwidth, text in links
    ]
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8.5, handlelength=2.6
    )
