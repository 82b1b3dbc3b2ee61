"""
Equal-cost multipath: a hash puts every flow on one of the uplinks, whatever is there already.

So n flows over m uplinks are balls thrown into bins: some uplinks get several, others none, and who waits for all flows
waits for the fullest (Raab and Steger, "Balls into bins", 1998; what it does to training is measured by Gangidi et al.,
"RDMA over Ethernet for distributed AI training at Meta scale", SIGCOMM 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def hashed(key: Sequence[int], src: Ints, dst: Ints, ports: int) -> Ints:
    """The port, of *ports*, of the flow from each *src* to each *dst*: as if drawn, and the same for the same *key*."""
    value = np.full(len(src), 0x9E3779B97F4A7C15, np.uint64)
    for part in (*(np.array([k], np.uint64) for k in key), src.astype(np.uint64), dst.astype(np.uint64)):
        value = _mixed(np.bitwise_xor(value, part))
    return (value % np.uint64(ports)).astype(np.int64)


def surviving(key: Sequence[int], src: Ints, dst: Ints, *, port: Ints, working: Bools) -> Ints:
    """Each flow's *port*, or where that is not *working* [flows, ports] another one that is, by another hash.

    Flows whose port works stay there, as with resilient hashing.
    """
    lost = np.flatnonzero(~working[np.arange(len(port)), port])
    if not len(lost):
        return port
    left = working[lost]
    chosen = hashed((*key, 1), src[lost], dst[lost], 1 << 31) % left.sum(axis=1)
    out = port.copy()
    out[lost] = (np.cumsum(left, axis=1) > chosen[:, None]).argmax(axis=1)
    return out


def fullest(flows: int, uplinks: int) -> float:
    """Flows that the fullest of *uplinks* has on average, when each of *flows* is put on one of them at random.

    The number of ways to lay n different balls in m bins, at most k in each, is ``n! [x^n] (sum_{j<=k} x^j/j!)^m``.

    >>> fullest(2, 2), round(fullest(8, 8), 3), fullest(5, 1)
    (1.5, 2.597, 5.0)
    """
    below = [_at_most(k, flows, uplinks) / uplinks**flows for k in range(flows)]
    return flows - sum(below) if flows else 0.0


def _at_most(most: int, flows: int, uplinks: int) -> int:
    """Ways to lay *flows* on *uplinks* so that none has more than *most*."""
    ways = [1, *[0] * flows]
    for _ in range(uplinks):
        ways = [sum(comb(n, j) * ways[n - j] for j in range(min(most, n) + 1)) for n in range(flows + 1)]
    return ways[flows]


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A 64-bit finaliser (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
