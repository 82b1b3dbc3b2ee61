"""
Placements: in which order a machine gives out its nodes, one file each. A job gets as many as it needs, from the first
on, and its ranks go through them in that order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from trainsim.hardware.fabric import Fabric
from trainsim.registry import Registry

Ints = npt.NDArray[np.int64]

Placement = Callable[[Ints, Ints, int], Ints]
"""(Free nodes, ascending; the leaf of each; a seed) -> all of them in the order in which they are given out."""

placements: Registry[Placement] = Registry("placement", __name__)


def leaves_of(fabric: Fabric, nodes: Ints) -> Ints:
    """The leaf of each node, or its set of leaves where there is one leaf per rail; all on one without a network."""
    return np.asarray(nodes, np.int64) // max(fabric.nodes_per_leaf, 1)
