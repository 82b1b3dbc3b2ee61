"""At random, from a seed."""

from __future__ import annotations

import numpy as np

from trainsim.hardware.placements import Ints, placements


@placements.register("random")
def random(nodes: Ints, leaves: Ints, seed: int) -> Ints:
    """At random: the free nodes shuffled, in the same way for the same seed.

    >>> sorted(random(np.arange(4), np.zeros(4, np.int64), 7).tolist())
    [0, 1, 2, 3]
    """
    return np.random.default_rng(seed).permutation(nodes)
