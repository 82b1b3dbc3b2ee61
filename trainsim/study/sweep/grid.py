"""Run the points of a grid and collect their rows, in the order of the grid whatever the order of finishing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainsim.errors import ScenarioError
from trainsim.report.progress import bar
from trainsim.scenario.scenario import Scenario
from trainsim.study.sweep.points import COLUMNS, TYPES, Grid, Row, failed, points, run_point

if TYPE_CHECKING:
    from pandas import DataFrame

FEW = 4  # points that are run here: starting processes would take longer
NOT_RUN = "interrupted before it ran"
Changes = dict[str, Any]


def sweep(base: Scenario, grid: Grid, *, workers: int | None = None, progress: bool | None = None) -> DataFrame:
    """A table with a row per point of *grid*: the changed values, what came out, and ``error`` where nothing did.

    ``workers`` processes run (None: one per core; 1: none but this one). ``progress`` shows a bar on standard error
    (None: where somebody looks at it). An interrupt keeps the rows that are finished. Raises ScenarioError for a
    grid that is not lists of values.
    """
    from pandas import DataFrame

    if workers is not None and (isinstance(workers, bool) or workers < 1):
        raise ScenarioError(f"workers={workers}: wants 1 or more processes")
    todo = list(points(grid))
    rows: list[Row] = []
    with bar("sweep", len(todo), progress) as advance:
        try:
            for row in _run(base, todo, workers):
                rows.append(row)
                advance()
        except KeyboardInterrupt:
            pass
    interrupted = len(rows) < len(todo)
    rows += [failed(NOT_RUN)] * (len(todo) - len(rows))
    table = [{**changes, **row} for changes, row in zip(todo, rows, strict=True)]
    frame = DataFrame(table, columns=[*grid, *COLUMNS]).astype(TYPES)
    frame.attrs["interrupted"] = interrupted
    return frame


def _run(base: Scenario, todo: Sequence[Changes], workers: int | None) -> Iterator[Row]:
    """The rows of *todo*, in order. A worker that dies costs the point that it died of."""
    from joblib import cpu_count

    workers = min(workers or int(cpu_count()), len(todo))
    if workers == 1 or (len(todo) <= FEW and workers <= FEW):
        yield from (run_point(base, changes) for changes in todo)
        return
    done = 0
    while done < len(todo):
        try:
            for row in _parallel(base, todo[done:], workers):
                done += 1
                yield row
        except Exception as error:  # the operating system killed a worker: try its point alone, go on with the others
            yield _alone(base, todo[done], error)
            done += 1


def _parallel(base: Scenario, todo: Sequence[Changes], workers: int) -> Iterator[Row]:
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=workers, return_as="generator")(delayed(run_point)(base, c) for c in todo)


def _alone(base: Scenario, changes: Changes, before: Exception) -> Row:
    """The row of a point after a worker died, run in a process of its own."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(run_point, base, changes).result()
    except Exception:
        return failed(f"the process that ran it died ({type(before).__name__}); out of memory?")
