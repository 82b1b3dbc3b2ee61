"""Max-min fair rates of activities that share resources. Pure: no time, no SimPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainsim.contracts.system import FLOOR as FLOOR


class Use(NamedTuple):
    """What one activity (or one class of them) takes of each resource at rate 1, its top rate: fractions in grains.

    ``loads`` are proportional to the rate; ``holds`` are taken for as long as it runs, whatever its rate. ``lost`` is
    what an outage takes away: it may leave nothing, and then who loads the resource has rate 0.
    """

    loads: tuple[tuple[int, float], ...] = ()
    holds: tuple[tuple[int, float], ...] = ()
    lost: tuple[tuple[int, float], ...] = ()


def max_min(uses: Sequence[Use]) -> list[float]:
    """The max-min fair rates of *uses*, as fractions of their top rates, by progressive filling.

    Raise the rate of all until a resource is full or the top is reached; fix those; go on with the rest. Sums of
    loads are exact and what is left is rounded once per round: the rates depend on no order, and a class of n equal
    activities gets to the last bit what n activities get (Bertsekas and Gallager, Data Networks, 6.5.2).

    >>> max_min([Use(((0, 1.0),)), Use(((0, 1.0), (1, 0.25))), Use(((1, 0.5),))])
    [0.5, 0.5, 1.0]
    """
    rates = [0.0] * len(uses)
    live = list(range(len(uses)))
    left = _free(uses)
    while live:
        load = _sums(uses, live)
        level = min([1.0, *(left[r] / k for r, k in load.items())])
        fixed = live
        if level < 1.0:
            full = {r for r, k in load.items() if left[r] / k == level}
            fixed = [i for i in live if any(r in full for r, _ in uses[i].loads)]
        for i in fixed:
            rates[i] = level
        for r, k in _sums(uses, fixed).items():
            left[r] = max(0.0, left[r] - level * k)
        gone = set(fixed)
        live = [i for i in live if i not in gone]
    return rates


def _free(uses: Sequence[Use]) -> dict[int, float]:
    """What holds and outages leave of each resource that something loads."""
    left = dict.fromkeys((r for u in uses for r, _ in u.loads), 1.0)
    for u in uses:
        for r, amount in u.holds:
            if r in left:
                left[r] -= amount
    left = {r: max(x, FLOOR) for r, x in left.items()}
    for u in uses:
        for r, amount in u.lost:
            if r in left:
                left[r] = max(0.0, left[r] - amount)
    return left


def _sums(uses: Sequence[Use], some: Sequence[int]) -> dict[int, float]:
    total: dict[int, float] = {}
    for i in some:
        for r, load in uses[i].loads:
            total[r] = total.get(r, 0.0) + load
    return total
