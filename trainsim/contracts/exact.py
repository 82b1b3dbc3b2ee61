"""
Numbers whose sums are exact, so that no result depends on an order of summing.

Shared resources can make the dynamics chaotic: a disturbance of one rounding error grows tenfold every few
microbatches. "Equal to 1e-9" then needs equal to the last bit. Times are multiples of a tick and loads are
multiples of a grain, both powers of two: float64 adds them without rounding (times below 2**53 ticks, loads below
2**23 capacities), in any order, folded or not, with marks or not.
"""

from __future__ import annotations

TICK = 2.0**-40  # seconds, about a picosecond
LONGEST = 2.0**53 * TICK  # 8192 seconds: what a float64 can hold in exact multiples of TICK
COARSER = 16.0  # a run that may be longer takes a tick so many times longer
MARGIN = 4.0  # how much longer than expected a run may be
GRAIN = 2.0**-30  # of a capacity


def ticks(seconds: float, tick: float = TICK) -> float:
    """*seconds* as a whole number of ticks.

    >>> ticks(0.1) + ticks(0.2) == ticks(0.3)
    True
    """
    return round(seconds / tick) * tick


def longest(tick: float) -> float:
    """Seconds that a float64 can hold in exact multiples of *tick*."""
    return LONGEST * (tick / TICK)


def tick_for(seconds: float) -> float:
    """The tick of a run that is expected to take *seconds*, and may take MARGIN times as long.

    >>> tick_for(100.0) == TICK, tick_for(2e4) / TICK, longest(tick_for(1e6)) > 1e6
    (True, 16.0, True)
    """
    tick = TICK
    while seconds >= longest(tick) / MARGIN:
        tick *= COARSER
    return tick


def grains(fraction: float) -> float:
    """A fraction of a capacity as a whole number of grains.

    >>> grains(0.1) + grains(0.2) - grains(0.3) in (0.0, GRAIN, -GRAIN)
    True
    """
    return round(fraction / GRAIN) * GRAIN
