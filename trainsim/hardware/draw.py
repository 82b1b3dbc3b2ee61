"""
A picture from which a person recognises the machine: one node in full, and the network.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainsim.figures import figure as new_figure
from trainsim.figures import legible
from trainsim.hardware.describe import describe
from trainsim.hardware.draw_fabric import draw_fabric
from trainsim.hardware.draw_node import draw_node
from trainsim.hardware.draw_style import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainsim.hardware.cluster import Cluster
    from trainsim.hardware.fabric import Fabric


def draw(cluster: Cluster) -> Figure:
    """A Figure of *cluster*: its network above, one of its nodes below.

    >>> from trainsim.hardware.cluster import load_topology
    >>> len(draw(load_topology("dgx_a100", nodes=2)).axes)
    2
    """
    fabric = cluster.has_network
    figure = new_figure(figsize=(14, 9 if fabric else 6), layout="constrained")
    if fabric:
        tall = 1.1 if cluster.fabric.pods else 0.9
        above, below = figure.subplots(2, 1, height_ratios=[tall, 1.25])
        draw_fabric(above, _shown(cluster.fabric), real_nodes=cluster.nodes)
    else:
        below = figure.subplots()
    draw_node(below, cluster)
    name = legible(f"{cluster.name}: {cluster.description}")
    words = name.text + (f"  ({name.note})" if name.note else "")
    figure.suptitle(words, fontsize=11, color=INK, x=0.01, ha="left", family=name.family, parse_math=False)
    return figure


def _shown(fabric: Fabric) -> Fabric:
    """The fabric to draw: for a lone node, that of two full leaves, so that one sees how it is meant."""
    fabric = replace(fabric, failed_uplinks=())
    if fabric.nodes > 1:
        return fabric
    if fabric.kind == "single_switch":
        return replace(fabric, nodes=4, nodes_per_leaf=4)
    return replace(fabric, nodes=2 * (fabric.nodes_per_pod or fabric.nodes_per_leaf))


__all__ = ["describe", "draw"]
