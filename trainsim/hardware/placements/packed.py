"""Neighbours, leaf by leaf."""

from __future__ import annotations

from trainsim.hardware.placements import Ints, placements


@placements.register("packed")
def packed(nodes: Ints, leaves: Ints, seed: int) -> Ints:
    """Neighbours, leaf by leaf: the free nodes in the order of their numbers.

    >>> import numpy as np
    >>> packed(np.array([1, 2, 5]), np.array([0, 1, 2]), 0).tolist()
    [1, 2, 5]
    """
    return nodes
