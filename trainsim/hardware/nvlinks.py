"""
NVLinks of another rate than the cables of a topology say: as written, or those of the GPU that stands there.
"""

from __future__ import annotations

from dataclasses import replace

from trainsim.documents.part import DocumentPart
from trainsim.hardware.constants import limits
from trainsim.hardware.gpu import GPU
from trainsim.hardware.node import Node
from trainsim.units import parse_bandwidth

OWN = "own"
"""What ``nvlink_bandwidth`` is where the NVLinks are those of the GPU, whatever the cables say."""
SAME_RATE = 0.01
"""Bandwidths that differ by less are written differently and mean the same."""


def with_nvlink(top: DocumentPart, node: Node, gpu: GPU, whole: Node) -> Node:
    """*node* with its NVLinks scaled so that those of a GPU have ``nvlink_bandwidth`` together.

    ``own`` are those of *gpu*, over all NVLinks of *whole*, the node with every place filled; where that has none, the
    GPU uses none. Raises the topology's error for a GPU without NVLink where the topology joins GPUs by it.
    """
    if "nvlink_bandwidth" not in top.data:
        return node
    if top.data["nvlink_bandwidth"] == OWN:
        return _with_own(top, node, gpu, whole.nvlink_bandwidth)
    low, high = limits("bandwidth")
    wanted = top.quantity("nvlink_bandwidth", parse_bandwidth, low=low, high=high)
    if not node.nvlink_bandwidth:
        raise top.fail("nvlink_bandwidth", "gpu0 of this topology has no NVLinks to change")
    return _scaled(node, wanted / node.nvlink_bandwidth)


def _with_own(top: DocumentPart, node: Node, gpu: GPU, there: float) -> Node:
    if not there or node.count("gpu") == 1:
        return node
    if not gpu.nvlink_bandwidth:
        raise top.fail("gpu", _without(gpu))
    factor = gpu.nvlink_bandwidth / there
    return node if abs(factor - 1.0) < SAME_RATE else _scaled(node, factor)


def _scaled(node: Node, factor: float) -> Node:
    cables = (replace(c, bandwidth=c.bandwidth * factor) if c.family == "nvlink" else c for c in node.cables)
    return replace(node, cables=tuple(cables))


def _without(gpu: GPU) -> str:
    return (
        f"{gpu.name} has no NVLink, which this topology uses to connect GPUs; choose one that uses PCIe, such as "
        "pcie_box or pcie_4gpu, or give the GPU one: nvlink_bandwidth: 50GB/s"
    )
