"""``ts.sweep``: every point of a grid, run, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.errors import ScenarioError
from trainsim.scenario.changes import is_within, plain
from trainsim.scenario.scenario import Scenario
from trainsim.study.runner import Runner
from trainsim.study.trial import Change, Measures, Outcome, Trial, as_scenario, measures

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType

Grid = Mapping[str, Sequence[Any]]

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
}
"""Columns of a sweep, and which of the measures each holds."""
COLUMNS = (*MEASURED, "error")
TYPES = {  # whatever the first row holds: a missing value is missing in each of them
    **dict.fromkeys(MEASURED, "float64"),
    "fits": "boolean",
    "warnings": "Int64",
    "error": "object",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The points of a grid in its order, and what came of each; ``interrupted``: some were not run."""

    axes: tuple[str, ...]
    outcomes: tuple[Outcome[Measures], ...]
    interrupted: bool = False

    def rows(self) -> Iterator[dict[str, Any]]:
        """A mapping per point: the changed values, the columns of ``COLUMNS``."""
        for outcome in self.outcomes:
            value, failure = outcome.value, outcome.failure
            row = {column: getattr(value, name, None) for column, name in MEASURED.items()}
            yield {**outcome.trial.changes, **row, "error": failure.reason if failure else None}

    def frame(self) -> DataFrame:
        """A row per point, as pandas has it."""
        from pandas import DataFrame

        frame = DataFrame(list(self.rows()), columns=[*self.axes, *COLUMNS]).astype(TYPES)
        frame.attrs["interrupted"] = self.interrupted
        return frame

    def __rich__(self) -> RenderableType:
        from trainsim.study.sweep_sections import table_of
        from trainsim.tables.terminal import rich_section

        return rich_section(table_of(self))

    def _repr_html_(self) -> str:
        from trainsim.study.sweep_sections import table_of
        from trainsim.tables.page import card

        return card([table_of(self)])


def sweep(
    base: Scenario | str | Path, grid: Grid, *, workers: int | None = None, progress: bool | None = None
) -> DataFrame:
    """A table with a row per point of *grid*: the changed values, what came out, and ``error`` where nothing did.

    *base* is a scenario, its file or its name. ``workers`` processes run (None: one per core where that pays; 1: none
    but this one). ``progress`` shows a bar on standard error (None: where somebody looks at it). An interrupt keeps the
    rows that are finished. Raises ScenarioError for a grid that is not lists of values.

    >>> table = sweep("quickstart", {"parallel.tp": [2, 3]})
    >>> table.error[1]
    'parallel.tp = 3: 32 heads do not divide by tp=3; tp=1, 2, 4, 8, 16, 32 would'
    """
    return run_grid(base, grid, workers=workers, progress=progress).frame()


def run_grid(
    base: Scenario | str | Path, grid: Grid, *, workers: int | None = None, progress: bool | None = None
) -> Sweep:
    """The same as a value that also prints itself."""
    runner = Runner(keep=measures, workers=workers, progress=progress)
    scenario = as_scenario(base)
    trials = [Trial(base=scenario, parts=(Change(title=label(p), values=p),)) for p in points(grid)]
    outcomes = runner.run(trials, "sweep")
    return Sweep(axes=tuple(grid), outcomes=tuple(outcomes), interrupted=runner.interrupted)


def points(grid: Grid) -> Iterator[dict[str, Any]]:
    """Every combination of the values of *grid*, the last path varying fastest.

    Raises ScenarioError for a path without a list of values, or with another that lies in it.

    >>> list(points({"parallel.tp": [1, 2], "parallel.pp": [4]}))
    [{'parallel.tp': 1, 'parallel.pp': 4}, {'parallel.tp': 2, 'parallel.pp': 4}]
    """
    if not isinstance(grid, Mapping):
        raise ScenarioError(
            f"a grid is a mapping from paths to values, such as {{'parallel.tp': [1, 2]}}, not {grid!r}"
        )
    grid = {path: plain(values) if hasattr(values, "tolist") else values for path, values in grid.items()}
    for path, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence | range) or not len(values):
            raise ScenarioError(f"{path}: wants a list of values to try, not {values!r}")
    for path, section in permutations(map(str, grid), 2):
        if is_within(path, section):
            raise ScenarioError(f"{section}: each of its values would undo those of {path}; keep one of the two")
    return (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))


def label(point: Mapping[str, Any]) -> str:
    """A point in few words.

    >>> label({"pipeline.schedule": "zb-v", "parallel.tp": 2})
    'zb-v, tp 2'
    """
    return ", ".join(v if isinstance(v, str) else f"{path.rpartition('.')[2]} {v}" for path, v in point.items())
