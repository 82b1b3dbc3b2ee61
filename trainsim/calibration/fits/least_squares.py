"""
Robust least squares with priors: few unknowns, residuals in logarithms, outliers that count once and not squared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Residuals = Callable[[Floats], Floats]

STEP = 1e-4
"""Of an unknown, for slopes."""
MOST_ROUNDS = 30
SETTLED = 1e-3
"""An unknown that moves less than this has found its place."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the unknowns end up; ``told`` is the part of each prior's variance that the data took away: near 0 for an
    unknown that they say nothing of. ``cost`` is what is left: small is better."""

    at: Floats
    told: Floats
    cost: float


def solve(residuals: Residuals, spreads: Floats, noise: Floats | float, start: Floats | None = None) -> Solution:
    """The unknowns that make *residuals* small and stay near zero, by Levenberg and Marquardt with Huber's weights.

    *spreads* are the standard deviations of the priors around zero, *noise* that of each residual: beyond it a residual
    counts in proportion, not squared.

    >>> import numpy as np
    >>> seen = np.array([1.0, 1.0, 1.0, 9.0])
    >>> round(float(solve(lambda x: x[0] - seen, np.array([10.0]), 0.1).at[0]), 1)
    1.0
    """
    at = np.zeros(len(spreads)) if start is None else start
    damping, here = 1e-3, residuals(at)
    cost = _cost(here, at, spreads, noise)
    for _ in range(MOST_ROUNDS):
        slopes = slopes_of(residuals, at, here)
        weights = _weights(here, noise) / noise**2
        normal = slopes.T @ (weights[:, None] * slopes) + np.diag(spreads**-2.0)
        downhill = -(slopes.T @ (weights * here) + at / spreads**2)
        while damping < 1e9:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
            there = residuals(at + step)
            if np.isfinite(there).all() and (better := _cost(there, at + step, spreads, noise)) <= cost:
                break
            damping *= 4.0
        else:
            break
        at, here, cost, damping = at + step, there, better, damping / 8.0
        if np.abs(step).max(initial=0.0) < SETTLED:
            break
    return Solution(at, told(slopes_of(residuals, at, here), spreads, noise), cost)


def slopes_of(residuals: Residuals, at: Floats, here: Floats) -> Floats:
    """How much each residual changes with each unknown: [residuals, unknowns]."""
    columns = [(residuals(at + STEP * one) - here) / STEP for one in np.eye(len(at))]
    return np.array(columns).T.reshape(len(here), len(at))


def told(slopes: Floats, spreads: Floats, noise: Floats | float) -> Floats:
    """For each unknown, the part of its prior's variance that is gone once the residuals are known."""
    weighted = slopes / np.broadcast_to(np.asarray(noise, np.float64), len(slopes))[:, None]
    normal = weighted.T @ weighted + np.diag(spreads**-2.0)
    return np.asarray(1.0 - np.diag(np.linalg.inv(normal)) / spreads**2)


def _weights(residuals: Floats, noise: Floats | float) -> Floats:
    return np.asarray(np.minimum(1.0, noise / np.maximum(np.abs(residuals), 1e-300)))


def _cost(residuals: Floats, at: Floats, spreads: Floats, noise: Floats | float) -> float:
    size = np.abs(residuals) / noise
    huber = np.where(size <= 1.0, 0.5 * size**2, size - 0.5)
    return float(huber.sum() + 0.5 * ((at / spreads) ** 2).sum())
