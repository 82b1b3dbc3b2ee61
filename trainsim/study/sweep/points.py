"""One point of a sweep: what is changed, what comes out, and why nothing did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from trainsim.errors import ScenarioError, TrainsimError
from trainsim.scenario.changes import plain
from trainsim.scenario.scenario import Scenario

if TYPE_CHECKING:
    from trainsim.result.result import Result

Grid = Mapping[str, Sequence[Any]]
Row = dict[str, Any]

COLUMNS = (
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "mfu",
    "hfu",
    "bubble_fraction",
    "peak_memory_bytes",
    "needed_memory_bytes",
    "fits",
    "warnings",
    "error",
)

TYPES = {  # of the columns, whatever their first row holds; a missing value is missing in each of them
    **dict.fromkeys(COLUMNS[:8], "float64"),
    "fits": "boolean",
    "warnings": "Int64",
    "error": "object",
}


def points(grid: Grid) -> Iterator[dict[str, Any]]:
    """Every combination of the values of *grid*, the last path varying fastest.

    Raises ScenarioError for a path without a list of values.

    >>> list(points({"parallel.tp": [1, 2], "parallel.pp": [4]}))
    [{'parallel.tp': 1, 'parallel.pp': 4}, {'parallel.tp': 2, 'parallel.pp': 4}]
    """
    grid = {path: plain(values) if hasattr(values, "tolist") else values for path, values in grid.items()}
    for path, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence | range) or not len(values):
            raise ScenarioError(f"{path}: wants a list of values to try, not {values!r}")
    return (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))


def run_point(base: Scenario, changes: Mapping[str, Any]) -> Row:
    """The row of *base* with *changes*; whatever goes wrong is in its ``error`` column."""
    try:
        return measures(base.replace(changes).run())
    except TrainsimError as error:
        return failed(str(error))
    except Exception as error:
        return failed(f"{type(error).__name__}: {error}")


def measures(result: Result) -> Row:
    """The columns of a point that ran."""
    tokens = result.tokens_per_s
    return {
        "step_time_s": result.step_time,
        "tokens_per_s": tokens,
        "tokens_per_s_per_gpu": tokens / result.job.cluster.ranks,
        "mfu": result.mfu,
        "hfu": result.hfu,
        "bubble_fraction": result.bubble.fraction,
        "peak_memory_bytes": result.memory.peak,
        "needed_memory_bytes": result.memory.needed,
        "fits": result.memory.fits,
        "warnings": len(result.warnings),
        "error": None,
    }


def failed(reason: str) -> Row:
    """The columns of a point that did not run."""
    return {**dict.fromkeys(COLUMNS), "error": reason}
