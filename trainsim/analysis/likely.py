"""
How far a predicted step time is likely off: a range from the errors that published runs showed.

The error of a step is put together from those of its parts, as if they were independent: what the mean rank does with
its time (kernels, each sort of communication, waiting), and what nobody has checked (software, GPU, scale). Form and
constants: ``uncertainty.yaml``, fitted by ``python -m benchmarks.accuracy`` on runs whose own software and
constants were left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import exp, log2, sqrt
from typing import Any

from trainsim.contracts.job import Job
from trainsim.documents.catalogue import shipped

SHARES = {
    "kernels": ("compute", "recompute", "optimizer"),
    "tensor parallelism": ("tp",),
    "context parallelism": ("cp",),
    "expert parallelism": ("ep",),
    "data parallelism": ("dp",),
    "pipeline": ("pp", "bubble"),
    "host and others": ("other", "offload"),
}
"""Parts of the error, and the rows of the breakdown whose share of the step each grows with."""


CHANGED = ", changed"
"""What the name of a profile ends in where a scenario changes some of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Seconds per step between which the measured one lies in four of five cases, and what makes the range wide."""

    low: float
    high: float
    because: tuple[str, ...]


def parts_of(job: Job, breakdown: Mapping[str, float]) -> dict[str, float]:
    """The weight of each part of the error in a run: shares of the step, and 1 for what nobody has checked."""
    total = sum(breakdown.values()) or 1.0
    shares = {part: sum(breakdown.get(row, 0.0) for row in rows) / total for part, rows in SHARES.items()}
    known = _constants()["checked"]
    model, ranks = job.model, job.parallel.ranks
    return {
        "every run": 1.0,
        **shares,
        "software": 0.0 if job.framework.name.removesuffix(CHANGED) in known["frameworks"] else 1.0,
        "GPU": 0.0 if job.cluster.gpu.name in known["gpus"] else 1.0,
        "experts": float(any(kind.moe is not None for kind in model.kinds)),
        "scale": max(0.0, log2(ranks / known["ranks"])),
    }


def likely(step_time: float, parts: Mapping[str, float]) -> Range:
    """The range of a run of *step_time* seconds whose error has these *parts*.

    >>> narrow, wide = (likely(1.0, {"every run": 1.0, "software": unknown}) for unknown in (0.0, 1.0))
    >>> wide.low < narrow.low < 1.0 < narrow.high < wide.high
    True
    """
    constants = _constants()
    deviation = spread(parts, constants["deviation"])
    low, high = constants["quantiles"]
    return Range(
        low=step_time * exp(low * deviation),
        high=step_time * exp(high * deviation),
        because=tuple(_largest(parts, constants["deviation"])),
    )


def spread(parts: Mapping[str, float], deviation: Mapping[str, float]) -> float:
    """The deviation of the logarithm of a step time: the root of the sum of the squares of its parts'.

    >>> spread({"a": 1.0, "b": 0.5}, {"a": 0.03, "b": 0.08})
    0.05
    """
    return sqrt(sum((weight * deviation.get(part, 0.0)) ** 2 for part, weight in parts.items()))


def _largest(parts: Mapping[str, float], deviation: Mapping[str, float]) -> Iterable[str]:
    """The parts that make up most of the error, the largest first."""
    squares = {part: (weight * deviation.get(part, 0.0)) ** 2 for part, weight in parts.items() if part != "every run"}
    total = sum(squares.values())
    reached = 0.0
    for part, square in sorted(squares.items(), key=lambda item: -item[1]):
        if not square or reached >= 0.7 * total:
            return
        reached += square
        yield part


@cache
def _constants() -> dict[str, Any]:
    return dict(shipped("analysis", "uncertainty").data)
