"""A point of a sweep and what came of it: what its table, its summary and its pictures are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainsim.errors import ScenarioError
from trainsim.study.trial import Measures, Outcome

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURED = {
    "step_time_s": "step_time",
    "tokens_per_s": "tokens_per_s",
    "tokens_per_s_per_gpu": "tokens_per_s_per_gpu",
    "mfu": "mfu",
    "hfu": "hfu",
    "bubble_fraction": "bubble_fraction",
    "peak_memory_bytes": "peak_memory",
    "needed_memory_bytes": "needed_memory",
    "fits": "fits",
    "warnings": "warnings",
    "capacity_bytes": "capacity",
    "global_batch": "global_batch",
    "gpus": "gpus",
    "gpu_hours": "gpu_hours",
    "days": "days",
    "days_low": "days_low",
    "days_high": "days_high",
    "cost": "cost",
}
"""Columns of a sweep, and which of the measures each holds."""
COLUMNS = (*MEASURED, "error")
TYPES = {  # whatever the first row holds: a missing value is missing in each of them
    **dict.fromkeys(MEASURED, "float64"),
    "fits": "boolean",
    **dict.fromkeys(("warnings", "global_batch", "gpus"), "Int64"),
    "error": "object",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPoint:
    """The changed ``values`` by path, and what ``ran``; None, and the ``reason``, where nothing did."""

    values: Mapping[str, Any]
    ran: Measures | None = None
    reason: str = ""

    @property
    def fits(self) -> bool:
        return self.ran is not None and self.ran.fits

    @property
    def title(self) -> str:
        return label(self.values)

    def row(self) -> dict[str, Any]:
        """The values with the columns of ``COLUMNS``; SI units."""
        measured = {column: getattr(self.ran, name, None) for column, name in MEASURED.items()}
        return {**self.values, **measured, "error": self.reason or None}

    @classmethod
    def of(cls, outcome: Outcome[Measures]) -> SweptPoint:
        """The point of a trial."""
        reason = outcome.failure.reason if outcome.failure else ""
        return cls(values=outcome.trial.changes, ran=outcome.value, reason=reason)


def label(point: Mapping[str, Any]) -> str:
    """A point in few words.

    >>> label({"pipeline.schedule": "zb-v", "parallel.tp": 2})
    'zb-v, tp 2'
    """
    return ", ".join(v if isinstance(v, str) else f"{path.rpartition('.')[2]} {v}" for path, v in point.items())


def read_frame(frame: DataFrame) -> tuple[tuple[str, ...], tuple[SweptPoint, ...]]:
    """The axes and the points of a table that ``ts.sweep`` gave, also of some of its rows, or read from its CSV.

    Raises ScenarioError for a table without the columns of a sweep.
    """
    columns = [str(column) for column in frame.columns]
    missing = [column for column in COLUMNS if column not in columns]
    if missing:
        raise ScenarioError(f"the table has no column {missing[0]!r}; expected the table of ts.sweep with all columns")
    known = [axis for axis in frame.attrs.get("axes", ()) if axis in columns]
    axes = tuple(known or columns[: columns.index(COLUMNS[0])])
    rows = frame.astype("object").where(frame.notna(), None).to_dict("records")
    return axes, tuple(_point(axes, {str(key): value for key, value in row.items()}) for row in rows)


def _point(axes: tuple[str, ...], row: Mapping[str, Any]) -> SweptPoint:
    values = {axis: row[axis] for axis in axes if row[axis] is not None}
    if row["step_time_s"] is None:
        return SweptPoint(values=values, reason=str(row["error"] or "not run"))
    known = {name: row[column] for column, name in MEASURED.items()}
    full = row["peak_memory_bytes"] / row["capacity_bytes"]
    return SweptPoint(values=values, ran=Measures(**known, full=full, gpus_fit=bool(row["fits"]), complaint=""))
