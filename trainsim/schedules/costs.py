"""Times by which some schedules plan their order; any one unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainsim.errors import InvalidPlan


class Costs(NamedTuple):
    """Times of a chunk's passes and of a message, as whole numbers so that plans are the same everywhere."""

    forward: int = 1000
    input_gradient: int = 1000
    weight_gradient: int = 1000
    p2p: int = 1

    def whole(self, work: int) -> int:
        """Time of pass 0 (forward), 1 (input gradient) or 2 (weight gradient)."""
        return self[work]


USUAL = Costs()
"""Passes of equal length and next to no latency: what sail-sg plans with before anything was measured."""


def costs_of(given: Sequence[float] | None) -> Costs:
    """(Forward, input gradient, weight gradient, message) as whole numbers, the forward as 1000 where they are not.

    >>> costs_of((1.0, 1.2, 0.8, 0.1)), costs_of(None) == USUAL
    (Costs(forward=1000, input_gradient=1200, weight_gradient=800, p2p=100), True)
    """
    if given is None:
        return USUAL
    if len(given) != 4 or not all(isinstance(t, int | float) and 0 <= t < float("inf") for t in given) or given[0] <= 0:
        raise InvalidPlan(f"costs are the times of forward, input gradient, weight gradient and message, not {given!r}")
    if all(isinstance(t, int) for t in given):
        return Costs(*map(int, given))
    return Costs(*(round(1000 * t / given[0]) for t in given))
