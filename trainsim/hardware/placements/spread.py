"""Round robin over the leaves."""

from __future__ import annotations

import numpy as np

from trainsim.hardware.placements import Ints, placements


@placements.register("spread")
def spread(nodes: Ints, leaves: Ints, seed: int) -> Ints:
    """Round robin over the leaves: the first free node of each leaf, then the second of each.

    >>> spread(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), 0).tolist()
    [0, 4, 1, 5, 2, 3]
    """
    first = np.searchsorted(leaves, leaves)  # where the leaf of each node begins, as leaves ascend with their nodes
    return nodes[np.lexsort((leaves, np.arange(len(nodes)) - first))]
