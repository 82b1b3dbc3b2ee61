"""How much slower the slowest of many GPUs is than a typical one."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

from trainsim.documents.catalogue import shipped


def expected_maximum(count: int) -> float:
    """Expected maximum of *count* standard normal numbers, by Blom's approximation (1958; within 5 %).

    >>> round(expected_maximum(1), 3), round(expected_maximum(384), 2)
    (0.0, 2.94)
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


@cache
def gpu_spread(ranks: int) -> float:
    """Factor >= 1 on kernel times when *ranks* GPUs wait for each other: 1 + deviation x expected maximum.

    >>> gpu_spread(1)
    1.0
    """
    return 1.0 + float(shipped("costs", "constants").data["gpu_spread"]["deviation"]) * expected_maximum(ranks)
