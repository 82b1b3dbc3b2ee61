"""
The picture of one node: switches above, GPUs, PCIe switches with NICs beside them, hosts below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.hardware.draw_places import FIRST, GPU_ROW, LAST, Places, strokes
from trainsim.hardware.draw_style import box, curve, fitting, legend, note
from trainsim.hardware.node import Node, kind_of
from trainsim.units import format_bandwidth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from trainsim.hardware.cluster import Cluster

LEAST_WIDTH = 8.0
PICTURE_POINTS = 730.0  # width of the drawing without its legend
WORDS = {
    "gpu": "GPU",
    "nvswitch": "NVSwitch",
    "pcie": "PCIe switch",
    "host": "host (CPU, memory)",
    "nic": "NIC",
    "nvme": "disk",
}


def draw_node(axes: Axes, cluster: Cluster) -> None:
    """Draw one node of *cluster* on *axes*."""
    node, places = cluster.node, Places(cluster.node)
    low, high = _links(axes, node, places)
    left, right = _frame(axes, places, (low - 0.4, high + 0.8))
    unit = PICTURE_POINTS / (right - left)
    labels = {name: places.label.get(name, name) for name in places.at if name != "..."}
    fonts: dict[str, float] = {}
    for name, label in labels.items():
        font = fitting(label, places.size[name] * unit)
        fonts[kind_of(name)] = min(font, fonts.get(kind_of(name), font))
    for name, label in labels.items():
        kind = kind_of(name)
        box(axes, places.at[name], label, kind, size=(places.size[name], places.tall(name)), font=fonts[kind])
    if "..." in places.at:
        note(axes, places.at["..."], "...", font=14)
    if places.gap is not None:
        hidden = node.count("gpu") - FIRST - LAST
        note(axes, (places.gap, GPU_ROW), f"... {hidden} more ...", font=8)
    count = f" (one of {cluster.nodes})" if cluster.nodes > 1 else ""
    note(axes, (left + 0.1, high + 0.55), f"Node{count}", ha="left", bold=True, font=10)
    legend(axes, *_legend(cluster))


def _links(axes: Axes, node: Node, places: Places) -> tuple[float, float]:
    """All cables between drawn devices, and the rate of those between switches; how low and high they reach."""
    single = min((c.bandwidth for c in node.cables if kind_of(c.a) == kind_of(c.b) == "gpu"), default=0.0)
    trunk, low, high = 0.0, places.bottom, places.top
    for stroke in strokes(places):
        cable, ys = stroke.cable, stroke.points()[:, 1]
        kinds = {kind_of(cable.a), kind_of(cable.b)}
        trunk += cable.bandwidth * (kinds == {"nvswitch"})
        low, high = min(low, float(ys.min())), max(high, float(ys.max()))
        double = kinds == {"gpu"} and round(cable.bandwidth / single) == 2
        way = (stroke.start, stroke.control, stroke.end)
        curve(axes, way, cable.family, bandwidth=single if double else cable.bandwidth, double=double)
    if trunk:
        note(axes, (places.width / 2 - 0.5, high + 0.2), f"trunk of {format_bandwidth(trunk)} each way", font=8)
        high += 0.3
    return low, high


def _frame(axes: Axes, places: Places, heights: tuple[float, float]) -> tuple[float, float]:
    """Set the limits of *axes*; returns those of x. A small node stands in the middle of a usual one's room."""
    left = min(at[0] for at in places.at.values()) - 0.6
    right = max(at[0] for at in places.at.values()) + 0.6
    spare = max(0.0, LEAST_WIDTH - (right - left)) / 2
    axes.set_xlim(left - spare, right + spare)
    axes.set_ylim(*heights)
    axes.axis("off")
    return left - spare, right + spare


def _legend(cluster: Cluster) -> tuple[list[tuple[str, str]], list[tuple[str, float, str]]]:
    node = cluster.node
    devices = [(kind, f"{number} x {_words(cluster, kind)}") for kind, number in node.devices]
    seen: dict[tuple[str, float], tuple[str, str]] = {}
    for cable in node.cables:
        ends = f"{kind_of(cable.a)} - {kind_of(cable.b)}"
        seen.setdefault((cable.kind, cable.bandwidth), (cable.family, ends))
    single = min((c.bandwidth for c in node.cables if kind_of(c.a) == kind_of(c.b) == "gpu"), default=0.0)
    links = [
        (
            family,
            bandwidth,
            f"{kind}, {format_bandwidth(bandwidth)} each way ({ends})"
            + ", drawn double" * (ends == "gpu - gpu" and bandwidth > single),
        )
        for (kind, bandwidth), (family, ends) in seen.items()
    ]
    return devices, links


def _words(cluster: Cluster, kind: str) -> str:
    if kind == "gpu":
        return cluster.gpu.name
    if kind == "nic":
        return f"NIC of {format_bandwidth(cluster.node.nic_bandwidth)} ({cluster.node.nic_bandwidth * 8e-9:.0f} Gb/s)"
    return WORDS[kind]
