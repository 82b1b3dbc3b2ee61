"""Points spread over ranges: a Latin hypercube."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, floor, isfinite, log
from typing import Any

import numpy as np

from trainsim.errors import ScenarioError
from trainsim.study.designs.design import Design, DesignPart, checked_path, list_of

MOST = 1_000_000
"""Samples of one design."""
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_RANGE = re.compile(rf"\s*{_NUMBER}\s*\.\.\s*{_NUMBER}\s*([A-Za-zµ%/]*?)\s*(log)?\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRange:
    """Numbers from ``low`` to ``high``, both included: whole ones, or reals. ``by_ratio``: as many from 1 to 2 as from
    2 to 4. ``unit`` is written behind each number."""

    low: float
    high: float
    whole: bool = True
    by_ratio: bool = False
    unit: str = ""

    def at(self, part: float) -> Any:
        """The value at *part* (from 0 to below 1) of the range; reals with six digits.

        >>> [SampledRange(low=1, high=4).at(part) for part in (0.0, 0.3, 0.99)]
        [1, 2, 4]
        >>> SampledRange(low=1, high=100, whole=False).at(0.5)
        50.5
        """
        end = self.high + 1 if self.whole else self.high
        value = exp(log(self.low) + part * log(end / self.low)) if self.by_ratio else self.low + part * (end - self.low)
        kept: float = floor(value) if self.whole else float(f"{value:.6g}")
        kept = min(max(kept, self.low), self.high)
        return f"{kept!r}{self.unit}" if self.unit else kept


def read_range(path: str, text: str) -> SampledRange:
    """The range that *text* is: ``1..16`` (whole numbers), ``0.5..2.0``, ``1e-6..1e-3 log``, ``100..400Gbps``.

    Raises ScenarioError for what is none.

    >>> read_range("cluster.nic_bandwidth", "100..400Gbps").at(0.5)
    '250Gbps'
    """
    match = _RANGE.fullmatch(text)
    if not match:
        raise ScenarioError(f"{path}={text}: expected a range such as 1..16 or 1e-6..1e-3 log, or values with commas")
    whole = all(re.fullmatch(r"[+-]?\d+", end) for end in match.group(1, 2))
    low, high = float(match[1]), float(match[2])
    if not (isfinite(low) and isfinite(high)) or max(abs(low), abs(high)) > 1e15 * (1 if whole else 1e285):
        raise ScenarioError(f"{path}={text}: the ends are too large")
    if high < low:
        raise ScenarioError(f"{path}={text}: ends below its start; write {match[2]}..{match[1]}")
    if match[4] and low <= 0:
        raise ScenarioError(f"{path}={text}: log needs a range above 0")
    return SampledRange(
        low=int(match[1]) if whole else low,
        high=int(match[2]) if whole else high,
        whole=whole,
        by_ratio=bool(match[4]),
        unit=match[3],
    )


def samples(ranges: Mapping[str, str | Sequence[Any]], count: int = 32, *, seed: int = 0) -> Design:
    """*count* points of a Latin hypercube over *ranges* (path -> a range such as ``"1..16"``, or a list of choices).

    Each range is cut into *count* equal strata, and each stratum has one point; which goes with which is drawn by
    *seed*. Raises ScenarioError for a range or a number of samples that is none.

    >>> points = list(samples({"training.micro_batch": "1..4", "parallel.tp": [2, 4]}, 4, seed=1))
    >>> sorted(point["training.micro_batch"] for point in points), [point["parallel.tp"] for point in points].count(2)
    ([1, 2, 3, 4], 2)
    """
    for name, number, least in (("samples", count, 1), ("seed", seed, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MOST:
            raise ScenarioError(f"{name}={number!r}: expected a whole number from {least} to {MOST:,}")
    if not isinstance(ranges, Mapping) or not ranges:
        raise ScenarioError(
            f"samples want a mapping from paths to ranges, such as {{'parallel.tp': '1..8'}}: {ranges!r}"
        )
    axes = {checked_path(path): _values(path, given) for path, given in ranges.items()}
    strata = latin_hypercube(len(axes), count, seed=seed)
    columns = [_column(axis, row) for axis, row in zip(axes.values(), strata, strict=True)]
    points = tuple(dict(zip(axes, values, strict=True)) for values in zip(*columns, strict=True))
    return Design((DesignPart(axes=tuple(axes), points=points),))


def latin_hypercube(axes: int, count: int, *, seed: int) -> list[list[float]]:
    """For each of *axes*, *count* numbers from 0 to below 1, one in each of *count* equal strata; axis *k* has the
    same numbers whatever other axes there are.

    >>> [sorted(int(3 * part) for part in row) for row in latin_hypercube(2, 3, seed=0)]
    [[0, 1, 2], [0, 1, 2]]
    """
    rows = []
    for axis in range(axes):
        draw = np.random.default_rng([seed, axis])
        inside = draw.permutation(count) + draw.random(count) * (1 - 1e-9)
        rows.append((inside / count).tolist())
    return rows


def _values(path: str, given: object) -> SampledRange | tuple[Any, ...]:
    return read_range(path, given) if isinstance(given, str) else list_of(path, given)


def _column(axis: SampledRange | tuple[Any, ...], parts: Sequence[float]) -> list[Any]:
    if isinstance(axis, SampledRange):
        return [axis.at(part) for part in parts]
    return [axis[int(part * len(axis))] for part in parts]
