"""How much slower the slowest of many GPUs is than a typical one: on average, or drawn one by one."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from trainsim.documents.catalogue import shipped

STREAMS = ("gpu", "network", "kernel")
"""What is drawn, each from random numbers of its own: more of one kind changes nothing of another."""


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


def drawn(what: str, count: int, *, deviation: float, seed: int, of: int = 0) -> npt.NDArray[np.float64]:
    """Factors on the times of *count* things of a kind (one of STREAMS), around 1 with a standard deviation.

    They are log-normal, the same ones for the same seed, and more of them begin alike. *of* numbers those who draw.

    >>> few, many = (drawn("gpu", n, deviation=0.015, seed=3) for n in (2, 9))
    >>> bool((few == many[:2]).all()), bool(abs(many - 1).max() < 0.1)
    (True, True)
    """
    random = np.random.default_rng((seed, STREAMS.index(what), of))
    return np.exp(deviation * random.standard_normal(count))
