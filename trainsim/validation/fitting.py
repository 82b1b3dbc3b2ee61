"""
Constants that whole runs decide, fitted on published steps: on all sources, or on all but one.

A step is replayed once as it is and once with each constant a little larger; between the two its logarithm is taken as
linear in that of the constant, so that leaving out a source costs no further run. Constants are held near where they
were found alone by ``PRIOR``, so that one that few runs speak of stays. Robust: errors far out count less (Huber).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
STEP = 1.05
"""By which a constant is changed to see what it does."""
PRIOR = 0.08
"""Deviation of the logarithm of a constant from what it is believed to be, before any run is looked at."""
NOISE = 0.05
"""The same of a published step around one that is predicted with the right constants: what repeated runs differ by."""
HUBER = 1.5
"""Errors beyond so many deviations pull no harder."""
ROUNDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivities:
    """Logarithms of predicted over published steps (rows), and how they change with that of each constant (columns)."""

    errors: Floats
    slopes: Floats
    constants: tuple[str, ...]
    sources: tuple[str, ...]
    weights: Floats

    def without(self, source: str) -> Sensitivities:
        """Those of all other sources."""
        keep = np.array([s != source for s in self.sources])
        return Sensitivities(
            errors=self.errors[keep],
            slopes=self.slopes[keep],
            constants=self.constants,
            sources=tuple(s for s in self.sources if s != source),
            weights=self.weights[keep],
        )


def sensitivities(
    base: Mapping[str, float],
    changed: Mapping[str, Mapping[str, float]],
    *,
    published: Mapping[str, float],
    sources: Mapping[str, str],
    weights: Mapping[str, float],
) -> Sensitivities:
    """What runs (by id) took as they are and with each constant ``STEP`` times as large, against what was published.

    >>> s = sensitivities({"r": 1.0}, {"c": {"r": 1.0}}, published={"r": 1.0}, sources={"r": "S"}, weights={"r": 1.0})
    >>> s.slopes.tolist(), s.errors.tolist()
    ([[0.0]], [0.0])
    """
    rows = [run for run in base if all(run in of for of in changed.values())]
    return Sensitivities(
        errors=np.array([log(base[run] / published[run]) for run in rows]),
        slopes=np.array([[log(of[run] / base[run]) / log(STEP) for of in changed.values()] for run in rows]),
        constants=tuple(changed),
        sources=tuple(sources[run] for run in rows),
        weights=np.array([weights[run] for run in rows]),
    )


def fitted(given: Sensitivities) -> dict[str, float]:
    """The factor of each constant that makes the errors smallest.

    >>> one = {"published": {"r": 1.1}, "sources": {"r": "S"}, "weights": {"r": 1000.0}}
    >>> s = sensitivities({"r": 1.0}, {"clock": {"r": 1 / STEP}}, **one)
    >>> round(fitted(s)["clock"], 2)  # a clock of 1 / 1.1 makes the run as slow as it was
    0.91
    """
    slopes, errors = given.slopes, given.errors
    move: Floats = np.zeros(len(given.constants))
    for _ in range(ROUNDS):
        left = (errors + slopes @ move) / NOISE
        robust = given.weights * np.minimum(1.0, HUBER / np.maximum(np.abs(left), 1e-9)) / NOISE**2
        matrix = slopes.T @ (robust[:, None] * slopes) + np.eye(len(move)) / PRIOR**2
        move = np.asarray(-np.linalg.solve(matrix, slopes.T @ (robust * errors)), np.float64)
    return {name: float(np.exp(by)) for name, by in zip(given.constants, move, strict=True)}


def left(given: Sensitivities, factors: Mapping[str, float]) -> Floats:
    """The errors that are left with constants changed by *factors*: predicted over published, less 1."""
    move = np.array([log(factors[name]) for name in given.constants])
    rest: Floats = np.exp(given.errors + given.slopes @ move) - 1.0
    return rest


def equal_weights(keys: Sequence[tuple[str, str, str]]) -> list[float]:
    """Weights of runs by (source, model, GPU): each such group counts as one run, and each source as the root of its
    groups, since more of one laboratory's runs say less and less.

    >>> equal_weights([("A", "m", "g"), ("A", "m", "g"), ("B", "m", "g")])
    [0.5, 0.5, 1.0]
    """
    alike = {key: keys.count(key) for key in set(keys)}
    groups: dict[str, int] = {}
    for source, _, _ in alike:
        groups[source] = groups.get(source, 0) + 1
    return [1.0 / alike[key] / groups[key[0]] ** 0.5 for key in keys]
