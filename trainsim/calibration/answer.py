"""What a fit answers: constants that moved, those that stayed, and measurements beside what is simulated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

Kind = Literal["topology", "framework", "gpu", "scenario"]
"""What an override is of; a scenario names each of the first three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant that moved: where it stands in the override, its value there before and after, and its unit."""

    key: str
    before: float
    after: float
    unit: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As a mapping, for JSON."""
        return {"value": self.after, "before": self.before, "unit": self.unit}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measured number (s) beside the same as simulated ``before`` and ``after``; ``left_out`` is what is simulated
    where everything but this number was fitted. ``counts``: it had a part in the fit."""

    what: str
    measured: float
    before: float
    after: float
    nbytes: float | None = None
    left_out: float | None = None
    counts: bool = True

    def error(self, predicted: float) -> float:
        """*predicted* over measured, less 1."""
        return predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """What one fit found. ``kept`` says of each constant that stayed why it did; ``documents`` are the overrides."""

    constants: tuple[Constant, ...] = ()
    compared: tuple[Compared, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    facts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    documents: Mapping[Kind, Mapping[str, Any]] = field(default_factory=dict, hash=False)


def median_error(compared: Iterable[Compared], side: str) -> float | None:
    """The median of how far a side (``before``, ``after``, ``left_out``) is from what was measured."""
    errors = [abs(row.error(value)) for row in compared if row.counts and (value := getattr(row, side)) is not None]
    return median(errors) if errors else None
