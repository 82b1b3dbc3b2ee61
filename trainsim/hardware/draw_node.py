"""
The picture of one node: switches above, GPUs, PCIe switches with NICs beside them, hosts below.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from trainsim.hardware.draw_style import Point, arc, box, double, fitting, legend, line, note
from trainsim.hardware.node import Node, kind_of
from trainsim.units import format_bandwidth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from trainsim.hardware.cluster import Cluster

MOST_GPUS, FIRST, LAST = 16, 8, 4  # beyond the first number, only the first and last GPUs are drawn
MOST_SWITCHES = 12
GPU_ROW = 2.2
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


class Places:
    """Where each drawn device stands, and how wide it is; devices that are left out have no place."""

    def __init__(self, node: Node):
        self.node = node
        self.given = {name: (x, GPU_ROW + y) for name, x, y in node.layout}
        self.at: dict[str, Point] = {}
        self.size: dict[str, float] = {}
        self.label: dict[str, str] = {}
        self.gap: float | None = None
        self.neighbours: dict[str, list[str]] = defaultdict(list)
        for cable in node.cables:
            self.neighbours[cable.a].append(cable.b)
            self.neighbours[cable.b].append(cable.a)
        self._gpus()
        self.width = max(x for x, _ in (*self.at.values(), *self.given.values())) + 1.0
        self._switches()
        switches = [f"pcie{i}" for i in range(node.count("pcie"))]
        deeper = [name for name in switches if {"pcie"} <= self._kinds(name) and "gpu" not in self._kinds(name)]
        rows = [
            [name for name in switches if name not in deeper],
            deeper,
            [f"host{i}" for i in range(node.count("host"))],
        ]
        for depth, names in enumerate(filter(None, rows)):
            self._beneath(names, 1.0 - depth)

    @property
    def top(self) -> float:
        return max(y for _, y in self.at.values())

    @property
    def bottom(self) -> float:
        return min(y for _, y in self.at.values())

    def _put(self, name: str, at: Point, size: float) -> None:
        self.at[name], self.size[name] = self.given.get(name, at), size

    def _gpus(self) -> None:
        n = self.node.count("gpu")
        shown = list(range(n)) if n <= MOST_GPUS else [*range(FIRST), *range(n - LAST, n)]
        for slot, gpu in enumerate(shown):
            hidden_before = n > MOST_GPUS and slot >= FIRST
            self._put(f"gpu{gpu}", (slot + 1.2 * hidden_before, GPU_ROW), 0.74)
        self.gap = FIRST + 0.1 if n > MOST_GPUS else None

    def _switches(self) -> None:
        n = self.node.count("nvswitch")
        shown = list(range(n)) if n <= MOST_SWITCHES else [*range(6), *range(n - 3, n)]
        step = self.width / max(len(shown), 1)
        for slot, switch in enumerate(shown):
            self._put(f"nvswitch{switch}", ((slot + 0.5) * step - 0.5, GPU_ROW + 1.7), min(0.9, step * 0.8))
        if n > MOST_SWITCHES:
            left, right = self.at[f"nvswitch{shown[5]}"][0], self.at[f"nvswitch{shown[6]}"][0]
            self.at["..."] = ((left + right) / 2, GPU_ROW + 1.7)

    def _kinds(self, name: str) -> set[str]:
        return {kind_of(other) for other in self.neighbours[name]}

    def _beneath(self, names: list[str], y: float) -> None:
        """Place devices under the middle of what hangs above them, each with its NICs and disks beside it."""
        n = len(names)
        for i, name in enumerate(names):
            above = [self.at[x][0] for x in self.neighbours[name] if x in self.at and self.at[x][1] > y + 0.1]
            if not above and self.gap is not None:
                continue
            middle = (min(above) + max(above)) / 2 if above else (i + 0.5) / n * self.width - 0.5
            self._row(name, (middle, y), self.width / n if self.gap is None else max(above) - min(above) + 1.0)

    def _row(self, name: str, at: Point, span: float) -> None:
        """*name* with its NICs and its disks (as one box) side by side around *at*."""
        nics = [x for x in self.neighbours[name] if kind_of(x) == "nic"]
        disks = [x for x in self.neighbours[name] if kind_of(x) == "nvme"]
        beside = nics + disks[:1]
        if len(disks) > 1:
            self.label[disks[0]] = f"{len(disks)} nvme"
        row = [*beside[: len(beside) // 2], name, *beside[len(beside) // 2 :]]
        widths = [0.74 if kind_of(device) == "host" else 0.5 for device in row]
        stretch = min(span / sum(widths), 2.2)
        left = at[0] - sum(widths) * stretch / 2
        for device, width in zip(row, widths, strict=True):
            self._put(device, (left + width * stretch / 2, at[1]), min(width, width * stretch * 0.9))
            left += width * stretch


def draw_node(axes: Axes, cluster: Cluster) -> None:
    """Draw one node of *cluster* on *axes*."""
    node, places = cluster.node, Places(cluster.node)
    _links(axes, node, places)
    left, right = _frame(axes, places)
    unit = PICTURE_POINTS / (right - left)
    labels = {name: places.label.get(name, name) for name in places.at if name != "..."}
    fonts: dict[str, float] = {}
    for name, label in labels.items():
        font = fitting(label, places.size[name] * unit)
        fonts[kind_of(name)] = min(font, fonts.get(kind_of(name), font))
    for name, label in labels.items():
        kind = kind_of(name)
        tall = 0.40 if kind in ("nic", "nvme", "pcie") else 0.46
        box(axes, places.at[name], label, kind, size=(places.size[name], tall), font=fonts[kind])
    if "..." in places.at:
        note(axes, places.at["..."], "...", font=14)
    if places.gap is not None:
        hidden = node.count("gpu") - FIRST - LAST
        note(axes, (places.gap, GPU_ROW), f"... {hidden} more ...", font=8)
    count = f" (one of {cluster.nodes})" if cluster.nodes > 1 else ""
    note(axes, (left + 0.1, places.top + 0.75), f"Node{count}", ha="left", bold=True, font=10)
    legend(axes, *_legend(cluster))


def _links(axes: Axes, node: Node, places: Places) -> None:
    """All cables between drawn devices; trunks between switches as one bow per pair of complexes."""
    trunk = 0.0
    single = min((c.bandwidth for c in node.cables if kind_of(c.a) == kind_of(c.b) == "gpu"), default=0.0)
    for cable in node.cables:
        if cable.a not in places.at or cable.b not in places.at:
            continue
        a, b = places.at[cable.a], places.at[cable.b]
        kinds = {kind_of(cable.a), kind_of(cable.b)}
        if kinds == {"nvswitch"}:
            trunk += cable.bandwidth
            arc(axes, a, b, cable.family, bandwidth=cable.bandwidth, bend=-0.2)
        elif cable.family == "socket":
            bend = 0.22 * min(1.0, 4.0 / abs(b[0] - a[0]))
            a, b = (a[0], a[1] - 0.2), (b[0], b[1] - 0.2)
            arc(axes, a, b, cable.family, bandwidth=cable.bandwidth, bend=bend if a[0] < b[0] else -bend)
        elif kinds == {"gpu"} and round(cable.bandwidth / single) == 2:
            double(axes, a, b, cable.family, bandwidth=single)
        else:
            line(axes, a, b, cable.family, bandwidth=cable.bandwidth)
    if trunk:
        at = (places.width / 2 - 0.5, places.top + 0.75)
        note(axes, at, f"trunk of {format_bandwidth(trunk)} each way", font=8)


def _frame(axes: Axes, places: Places) -> tuple[float, float]:
    """Set the limits of *axes*; returns those of x. A small node stands in the middle of a usual one's room."""
    left = min(at[0] for at in places.at.values()) - 0.6
    right = max(at[0] for at in places.at.values()) + 0.6
    spare = max(0.0, LEAST_WIDTH - (right - left)) / 2
    axes.set_xlim(left - spare, right + spare)
    axes.set_ylim(places.bottom - (1.0 if places.bottom <= 0.0 else 0.4), places.top + 1.0)
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
