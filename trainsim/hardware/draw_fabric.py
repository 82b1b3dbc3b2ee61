"""
The picture of the network: nodes below, leaves, spines and core above; what repeats is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.hardware.draw_style import Point, box, fitting, line, note
from trainsim.hardware.fabric import FABRICS, Fabric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 16.0
NODES, LEAVES, SPINES, CORE = 0.0, 1.5, 3.0, 4.2
UNIT = 44.0  # points per unit of x
FAINT = 0.22
"""How strong the links of all rails but the first are, so that one rail can be followed."""


def some(count: int, most: int) -> list[int | None]:
    """The numbers 0..count-1, with None for those left out when there are more than *most*.

    >>> some(3, 4), some(9, 4)
    ([0, 1, 2], [0, 1, 2, None, 8])
    """
    if count <= most:
        return list(range(count))
    return [*range(most - 1), None, count - 1]


def draw_fabric(axes: Axes, fabric: Fabric, *, real_nodes: int) -> None:
    """Draw *fabric* on *axes*; *real_nodes* is how many nodes the cluster has, if the fabric is drawn for more."""
    blocks = some(-(-fabric.nodes // fabric.nodes_per_leaf), 2 if fabric.rails > 1 else 4)
    leaves = _leaves(axes, fabric, blocks)
    if fabric.uplinked:
        _spines(axes, fabric, leaves)
    title = f"Network, {fabric.kind}: {FABRICS[fabric.kind]}"
    if real_nodes != fabric.nodes:
        title += f"   (drawn for {fabric.nodes} nodes; this cluster has {real_nodes})"
    top = CORE if fabric.pods else SPINES if fabric.uplinked else LEAVES
    note(axes, (-0.2, top + 0.8), title, ha="left", bold=True, font=10)
    axes.set_xlim(-0.3, WIDTH + 0.3)
    axes.set_ylim(-0.5, top + 1.1)
    axes.axis("off")
    _notes(axes, fabric)


def _leaves(axes: Axes, fabric: Fabric, blocks: list[int | None]) -> dict[int, Point]:
    """Draw each shown block of nodes with its leaves; the places of the leaves by number."""
    width = WIDTH / len(blocks)
    places: dict[int, Point] = {}
    for slot, block in enumerate(blocks):
        left = slot * width
        if block is None:
            note(axes, (left + width / 2, (NODES + LEAVES) / 2), "...", font=16)
            continue
        rails = some(fabric.rails, 8)
        step = (width - 0.4) / len(rails)
        here: list[Point] = []
        for i, rail in enumerate(rails):
            at = (left + 0.2 + (i + 0.5) * step, LEAVES)
            if rail is None:
                note(axes, at, "...", font=12)
                continue
            number = block * fabric.rails + rail
            _box(axes, at, f"leaf{number}", "leaf", size=(min(step * 0.9, 1.5), 0.4))
            places[number] = at
            here.append(at)
        _nodes(axes, fabric, block, (left, width), here)
    return places


def _nodes(axes: Axes, fabric: Fabric, block: int, room: Point, leaves: list[Point]) -> None:
    """The nodes of one block, linked to its leaves."""
    first = block * fabric.nodes_per_leaf
    count = min(fabric.nodes_per_leaf, fabric.nodes - first)
    shown = some(count, max(2, int(room[1] / 1.3)))
    step = (room[1] - 0.4) / len(shown)
    for i, index in enumerate(shown):
        at = (room[0] + 0.2 + (i + 0.5) * step, NODES)
        if index is None:
            note(axes, at, "...", font=12)
            continue
        for rail, leaf in enumerate(leaves):
            line(
                axes,
                *_edges(at, leaf, 0.225, 0.2),
                "network",
                bandwidth=fabric.nic_bandwidth * fabric.nics / fabric.rails,
                alpha=0.7 if fabric.rails == 1 else 1.0 if rail == 0 else FAINT,
            )
        _box(axes, at, f"node{first + index}", "node", size=(min(step * 0.9, 1.2), 0.45))


def _spines(axes: Axes, fabric: Fabric, leaves: dict[int, Point]) -> None:
    """Spines above the leaves (of one pod where there are pods), and the core."""
    groups = some(fabric.pods, 2) if fabric.pods else [0]
    per_group = -(-fabric.spine_count // max(fabric.pods, 1))
    width = WIDTH / len(groups)
    for slot, group in enumerate(groups):
        if group is None:
            note(axes, (slot * width + width / 2, SPINES), "...", font=16)
            continue
        shown = some(per_group, 6 if len(groups) == 1 else 3)
        for i, spine in enumerate(shown):
            at = (slot * width + (i + 0.5) * width / len(shown), SPINES)
            if spine is None:
                note(axes, at, "...", font=12)
                continue
            for leaf, place in leaves.items():
                if not fabric.pods or _pod(fabric, leaf) == group:
                    rate = fabric.leaf_uplink / per_group
                    line(
                        axes,
                        *_edges(place, at, 0.2, 0.2),
                        "network",
                        bandwidth=min(rate, 25e9),
                        alpha=0.55 if len(leaves) < 9 else 0.3,
                    )
            if fabric.pods:
                line(
                    axes,
                    *_edges(at, (WIDTH / 2, CORE), 0.2, 0.2),
                    "network",
                    bandwidth=fabric.pod_uplink / per_group,
                    alpha=0.7,
                )
            _box(axes, at, f"spine{group * per_group + spine}", "spine", size=(1.2, 0.4))
    if fabric.pods:
        _box(axes, (WIDTH / 2, CORE), "core", "core", size=(3.0, 0.4))


def _box(axes: Axes, at: Point, label: str, kind: str, *, size: Point) -> None:
    box(axes, at, label, kind, size=size, font=min(7.5, fitting(label, size[0] * UNIT)))


def _edges(low: Point, high: Point, half: float, other: float) -> tuple[Point, Point]:
    """Where a link leaves the upper edge of the lower box and meets the lower edge of the higher one."""
    lean = max(-0.3, min(0.3, 0.05 * (high[0] - low[0])))
    return (low[0] + lean, low[1] + half), (high[0] - lean, high[1] - other)


def _pod(fabric: Fabric, leaf: int) -> int:
    return leaf // fabric.rails * fabric.nodes_per_leaf // fabric.nodes_per_pod


def _notes(axes: Axes, fabric: Fabric) -> None:
    """What each tier carries, at the right of the picture."""
    gigabits = fabric.nic_bandwidth * 8e-9
    ports = fabric.ports_per_leaf / fabric.oversubscription
    texts = [
        (NODES, f"{fabric.nodes} node{'s' * (fabric.nodes > 1)}"),
        (LEAVES, f"{fabric.leaves} leaves" if fabric.leaves > 1 else "1 switch"),
    ]
    rails = ", one to each rail\n(rail 0 is dark)" if fabric.rails > 1 else ""
    texts.append(((NODES + LEAVES) / 2, f"{fabric.nics} x {gigabits:.0f} Gb/s\nper node{rails}"))
    if fabric.uplinked:
        ratio = f"{fabric.oversubscription:g} : 1"
        texts.append(((LEAVES + SPINES) / 2, f"{ports:.0f} x {gigabits:.0f} Gb/s up\nper leaf ({ratio})"))
        texts.append((SPINES, f"{fabric.spine_count} spine{'s' * (fabric.spine_count > 1)}"))
    if fabric.pods:
        texts.append(
            ((SPINES + CORE) / 2, f"{fabric.pod_oversubscription:g} : 1 per pod\nof {fabric.nodes_per_pod} nodes")
        )
    for y, text in texts:
        note(axes, (WIDTH + 0.6, y), text, ha="left", font=8.5)
