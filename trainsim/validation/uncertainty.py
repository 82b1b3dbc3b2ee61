"""
How wide a range has to be: deviations of the parts of an error, from runs whose software and constants were left out.

Each source has the same weight, and each configuration of a source. The shape (quantiles) is what the errors of the
other sources show in units of their deviation; coverage is counted on the source that is left out of both fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import log1p
from typing import Any

import numpy as np
import numpy.typing as npt

from trainsim.documents.document import read_file
from trainsim.frameworks import FRAMEWORKS
from trainsim.validation.scores import RunScore

Floats = npt.NDArray[np.float64]
TAILS = (0.1, 0.9)
"""Of the errors that lie below and above a range of 80 %."""
LEAST, MOST = 1e-3, 0.5
"""The smallest and the largest deviation of a part that is looked for: few runs spend much on one sort of
communication, and those that do should not say that it may take any time."""
ASSUMED = {"GPU": 0.10, "scale": 0.03}
"""Deviations of what no published run can tell: kernels that are derived from a datasheet, and each doubling of GPUs
beyond the largest run."""
ROUNDS = 60
STEPS = (2.0, 1.25, 1.05)
"""Factors by which a deviation is changed while that helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFit:
    """Deviations of the parts, and the quantiles of errors in units of their deviation."""

    deviation: Mapping[str, float]
    quantiles: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTable:
    """ErrorTable (logarithms of predicted over published; rows), the weight of each part in each (columns), and their
    weights."""

    values: Floats
    parts: Floats
    names: tuple[str, ...]
    weights: Floats
    sources: tuple[str, ...]

    def of(self, keep: npt.NDArray[np.bool_]) -> ErrorTable:
        """Some of the rows."""
        sources = tuple(s for s, kept in zip(self.sources, keep, strict=True) if kept)
        return ErrorTable(
            values=self.values[keep],
            parts=self.parts[keep],
            names=self.names,
            weights=self.weights[keep],
            sources=sources,
        )


def errors_of(known: Sequence[RunScore], left_out: Sequence[RunScore]) -> ErrorTable:
    """The errors of all scores that have one: with all that is *known*, and with each run's source *left out*, where
    nobody checked its software. Sources weigh the same, and so do the configurations of each."""
    scores = [(s, 0.0) for s in known if s.error is not None] + [(s, 1.0) for s in left_out if s.error is not None]
    names = tuple(dict.fromkeys(name for score, _ in scores for name, _ in score.parts))
    rows = [dict(score.parts) | {"software": unknown, "GPU": 0.0} for score, unknown in scores]
    keys = [(s.run.source, s.run.text("model_name"), s.run.text("gpu")) for s, _ in scores]
    alike, groups = Counter(keys), Counter(source for source, *_ in set(keys))
    return ErrorTable(
        values=np.array([log1p(score.error or 0.0) for score, _ in scores]),
        parts=np.array([[row.get(name, 0.0) for name in names] for row in rows]),
        names=names,
        weights=np.array([1.0 / alike[key] / groups[key[0]] for key in keys]),
        sources=tuple(score.run.source for score, _ in scores),
    )


def fit(errors: ErrorTable) -> RangeFit:
    """The deviations under which the errors are likeliest (a Laplace distribution, whose tails are as heavy)."""
    variance = np.full(len(errors.names), 0.03**2)
    told = [bool(column.any()) for column in errors.parts.T]
    best = _loss(errors, variance)
    for _ in range(ROUNDS):
        before = best
        for column in np.flatnonzero(told):
            for factor in (*STEPS, *(1.0 / step for step in STEPS)):
                tried = variance.copy()
                tried[column] = min(max(tried[column] * factor**2, LEAST**2), MOST**2)
                if (loss := _loss(errors, tried)) < best:
                    variance, best = tried, loss
        if before - best < 1e-9:
            break
    found = zip(errors.names, variance, told, strict=True)
    deviation = {name: round(float(v) ** 0.5, 4) if known else ASSUMED.get(name, 0.0) for name, v, known in found}
    scaled = errors.values / np.sqrt(errors.parts**2 @ variance)
    low, high = (_quantile(scaled, errors.weights, tail) for tail in TAILS)
    # An error of +5 % says that the measured time is lower than the predicted one.
    return RangeFit(deviation=deviation, quantiles=(round(-high, 3), round(-low, 3)))


def coverage(errors: ErrorTable) -> dict[str, float]:
    """The part of each source's left-out runs that lies in its range, when the source is left out of the fit too."""
    found = {}
    unknown = errors.parts[:, errors.names.index("software")] > 0
    sources = np.array(errors.sources)
    for source in dict.fromkeys(errors.sources):
        left_out = sources == source
        fitted = fit(errors.of(~left_out))
        judged = left_out & unknown
        found[source] = float(_inside(errors.of(judged), fitted).mean())
    return found


def _inside(errors: ErrorTable, fitted: RangeFit) -> Floats:
    variance = np.array([fitted.deviation.get(name, 0.0) ** 2 for name in errors.names])
    scaled = -errors.values / np.sqrt(errors.parts**2 @ variance)
    low, high = fitted.quantiles
    inside: Floats = ((scaled >= low) & (scaled <= high)).astype(np.float64)
    return inside


def _loss(errors: ErrorTable, variance: Floats) -> float:
    width = np.sqrt(errors.parts**2 @ variance)
    return float((errors.weights * (np.abs(errors.values) / width + np.log(width))).sum())


def _quantile(values: Floats, weights: Floats, part: float) -> float:
    """The weighted quantile of *values*.

    >>> _quantile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.5)
    2.0
    """
    order = np.argsort(values)
    reached = (np.cumsum(weights[order]) - 0.5 * weights[order]) / weights.sum()
    return float(np.interp(part, reached, values[order]))


def document(fitted: RangeFit, checked: Mapping[str, Any]) -> str:
    """The file that ``likely`` reads."""
    lines = [
        "# Made by `python -m benchmarks.accuracy --write`: how far predicted step times are off.",
        "source: errors of published runs (trainsim/validation/data), their own software and constants left out",
        "deviation:  # of the logarithm of the step time, at full weight of the part",
        *(f"  {name}: {value}" for name, value in fitted.deviation.items()),
        f"quantiles: [{fitted.quantiles[0]}, {fitted.quantiles[1]}]  # in these units, 80 % of measured times between",
        "checked:  # what published runs were replayed with",
        f"  ranks: {checked['ranks']}",
        f"  frameworks: [{', '.join(checked['frameworks'])}]",
        f"  gpus: [{', '.join(checked['gpus'])}]",
    ]
    return "\n".join(lines) + "\n"


def checked_of(scores: Sequence[RunScore]) -> dict[str, Any]:
    """What the runs that were replayed were replayed with."""
    from trainsim.hardware.cluster import load_topology
    from trainsim.validation.mapping import scenario_of

    known = [score for score in scores if score.predicted and score.published]
    clusters = {tuple(sorted(scenario_of(s.run).scenario["cluster"].items())): s for s in known}
    gpus = {str(dict(c).get("gpu") or load_topology(dict(c)["topology"], nodes=1).gpu.name) for c in clusters}
    return {
        "ranks": max(score.run.wanted("num_gpus") for score in known),
        "frameworks": sorted(_with_variants({score.software for score in known})),
        "gpus": sorted(gpus),
    }


def _with_variants(profiles: Set[str]) -> set[str]:
    """*profiles*, and those that change one of them a little and are named after it, such as what launches wait for."""
    bases = {name: read_file(path, shown=name).data.get("base") for name, path in FRAMEWORKS.files.items()}
    alike = {name for name, base in bases.items() if isinstance(base, str) and name.startswith(f"{base}-")}
    return set(profiles) | {name for name in alike if bases[name] in profiles}
