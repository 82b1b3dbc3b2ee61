"""Where the devices of a node stand in its picture, and how the links between them run, without any drawing library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainsim.hardware.node import Cable, Node, kind_of

Point = tuple[float, float]
MOST_GPUS, FIRST, LAST = 16, 8, 4  # beyond the first number, only the first and last GPUs are drawn
MOST_SWITCHES = 12
GPU_ROW = 2.2
FLAT, TALL = ("nic", "nvme", "pcie"), (0.40, 0.46)
"""Kinds whose boxes are lower; heights of those and of the others."""
ROOM = 0.04
"""What a link keeps free beside a box."""
SAMPLES = np.linspace(0.0, 1.0, 41)
"""Where a curve is looked at."""


class Stroke(NamedTuple):
    """A link as a curve from ``start`` to ``end`` that bows towards ``control``, the middle if it is straight."""

    cable: Cable
    start: Point
    control: Point
    end: Point

    @property
    def straight(self) -> bool:
        """Whether it does not bow."""
        middle = ((self.start[0] + self.end[0]) / 2, (self.start[1] + self.end[1]) / 2)
        return abs(middle[0] - self.control[0]) + abs(middle[1] - self.control[1]) < 1e-9

    def points(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Points along it, (x, y) each."""
        t = SAMPLES[:, None]
        start, control, end = (np.array(point) for point in (self.start, self.control, self.end))
        curve: np.ndarray[tuple[int, int], np.dtype[np.float64]] = (
            (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end
        )
        return curve


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
        self._leftover()

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
            self._put(device, (left + width * stretch / 2, at[1]), min(0.74, width * stretch * 0.82))
            left += width * stretch
        if len(disks) > 1 and self.size[disks[0]] < 0.45:
            self.label[disks[0]] = f"{len(disks)}\nnvme"

    def _leftover(self) -> None:
        """NICs and disks that hang on GPUs or their switches: a row of their own under everything else."""
        kinds = ("nic", "nvme")
        names = [f"{kind}{i}" for kind in kinds for i in range(self.node.count(kind))]
        beside = set(self.label)  # a box that stands for several disks
        rest = {
            name: min(x for x, _ in above)
            for name in names
            if name not in self.at
            and not any(kind_of(other) in ("pcie", "host") for other in self.neighbours[name])
            and (above := [self.at[other] for other in self.neighbours[name] if other in self.at])
            and name not in beside
        }
        y, free = self.bottom - 1.0, -np.inf
        for name, x in sorted(rest.items(), key=lambda item: item[1]):
            place = max(x, free)
            self._put(name, (place, y), 0.6)
            free = place + 0.75

    def tall(self, name: str) -> float:
        """The height of a box."""
        return TALL[kind_of(name) not in FLAT]

    def hits(self, stroke: Stroke) -> int:
        """How many points of a link lie in boxes that are not its ends."""
        points, total = stroke.points(), 0
        for name, (x, y) in self.at.items():
            if name not in (stroke.cable.a, stroke.cable.b, "..."):
                inside = np.abs(points[:, 0] - x) < self.size[name] / 2 + ROOM
                inside &= np.abs(points[:, 1] - y) < self.tall(name) / 2 + ROOM
                total += int(inside.sum())
        return total


def strokes(places: Places) -> tuple[Stroke, ...]:
    """The links between drawn devices: each runs the first way on which no box is, or the way that meets the fewest."""
    drawn = [cable for cable in places.node.cables if cable.a in places.at and cable.b in places.at]
    return tuple(min(_ways(places, cable), key=places.hits) for cable in drawn)


def _ways(places: Places, cable: Cable) -> Iterator[Stroke]:
    """Ways of a link, the best first: straight from edge to edge, then arcs over and under what stands between."""
    (ax, ay), (bx, by) = places.at[cable.a], places.at[cable.b]
    kinds = kind_of(cable.a), kind_of(cable.b)
    level = abs(ay - by) < 0.3
    if not (level and kinds in (("nvswitch", "nvswitch"), ("host", "host"))):
        yield _straight(places, cable)
    straight = _straight(places, cable)
    if not level:
        for aside in (0.6, -0.6, 1.2, -1.2, 2.0, -2.0):
            yield straight._replace(control=(straight.control[0] + aside, straight.control[1]))
        return
    for height in (0.25 + 0.09 * abs(ax - bx), 0.5, 0.9, 1.4):
        for side in (-1.0, 1.0) if kinds == ("host", "host") else (1.0, -1.0):
            start, end = (
                (x, y + side * places.tall(name) / 2) for name, x, y in ((cable.a, ax, ay), (cable.b, bx, by))
            )
            yield Stroke(cable, start, ((ax + bx) / 2, (start[1] + end[1]) / 2 + 2 * side * height), end)


def _straight(places: Places, cable: Cable) -> Stroke:
    """From the edge of one box to that of the other: of boxes side by side the sides, else top and bottom."""
    ends = [(name, *places.at[name]) for name in (cable.a, cable.b)]
    out: list[Point] = []
    for (name, x, y), (_, ox, oy) in (ends, ends[::-1]):
        wide, side = places.size[name] / 2, np.sign(ox - x)
        if kind_of(cable.a) == kind_of(cable.b) == "gpu":
            out.append((x, y))
        elif abs(oy - y) < 0.3:
            out.append((x + float(side) * wide, y))
        else:
            lean = float(np.clip(0.1 * (ox - x), -0.7 * wide, 0.7 * wide))
            out.append((x + lean, y + float(np.sign(oy - y)) * places.tall(name) / 2))
    return Stroke(cable, out[0], ((out[0][0] + out[1][0]) / 2, (out[0][1] + out[1][1]) / 2), out[1])
