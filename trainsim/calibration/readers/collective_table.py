"""
Times of collectives as a table: a line per size, with the columns ``size_bytes`` and ``time_us`` and, where several
groups stand in one file, ``collective``, ``nranks``, ``nodes`` and ``algo``.
"""

from __future__ import annotations

from difflib import get_close_matches

from trainsim.calibration.measurements import CollectiveSweep, Measurements
from trainsim.calibration.reader import MeasuredText, MeasurementReader, register
from trainsim.calibration.readers.collective_names import ALGORITHMS, NOT_MODELLED, operation_in
from trainsim.calibration.tables import TableRow, header_of, rows_of
from trainsim.errors import ScenarioError

SIZES = ("size_bytes", "nbytes", "bytes", "size", "size(b)")
TIMES = {
    "time_us": 1e-6,
    "time(us)": 1e-6,
    "time": 1e-6,
    "latency_us": 1e-6,
    "time_ms": 1e-3,
    "time_s": 1.0,
    "seconds": 1.0,
}
OPERATIONS = ("collective", "operation", "op")
RANKS = ("nranks", "ranks", "gpus", "np")
NODES = ("nodes", "nnodes")
FORCED = ("algo", "algorithm")
READ = (SIZES, tuple(TIMES), OPERATIONS, RANKS, NODES, FORCED, ("gpu",))
"""Columns that say the same, together."""


def load(text: MeasuredText) -> Measurements:
    """A sweep for each group and collective. Raises ScenarioError that names the line and the column."""
    _check_names(text)
    groups: dict[tuple[str, int, int, str, str], list[tuple[float, float]]] = {}
    warnings: dict[str, None] = {}
    for row in rows_of(text):
        size, time = row.only(SIZES), row.only(TIMES)
        operation = _operation(row, text)
        if size is None or time is None or operation in NOT_MODELLED:
            missing = f"{operation} is not modelled" if size and time else "size or time is missing"
            warnings[f"{row.place}: {missing}; the line is left out"] = None
            continue
        key = (operation, _whole(row, RANKS), _whole(row, NODES), _algorithm(row), row.cells.get("gpu", ""))
        groups.setdefault(key, []).append((row.number(size), row.number(time) * TIMES[time]))
    if not groups:
        raise ScenarioError(f"{text.shown}: no line has both a size and a time")
    sweeps = tuple(
        CollectiveSweep(
            operation=operation,
            ranks=ranks,
            nodes=nodes,
            nbytes=tuple(size for size, _ in points),
            seconds=tuple(time for _, time in points),
            file=text.shown,
            gpu=gpu,
            algorithm=algorithm,
        )
        for (operation, ranks, nodes, algorithm, gpu), points in groups.items()
    )
    gpus = tuple({sweep.gpu: None for sweep in sweeps if sweep.gpu})
    return Measurements(sweeps=sweeps, gpus=gpus, warnings=tuple(warnings))


def sniff(text: MeasuredText) -> float:
    """Sure where the header has a size and a time."""
    names = header_of(text)
    return 0.8 if set(SIZES) & set(names) and set(TIMES) & set(names) else 0.0


def _check_names(text: MeasuredText) -> None:
    """Refuse columns that nobody reads and that look like one that is missing."""
    names = header_of(text)
    missing = [column for columns in READ if not set(columns) & set(names) for column in columns]
    for name in names:
        if not any(name in columns for columns in READ) and (
            meant := get_close_matches(name, missing, n=1, cutoff=0.8)
        ):
            raise ScenarioError(f"{text.shown}: unknown column {name!r}; is {meant[0]!r} meant? Rename it")


def _operation(row: TableRow, text: MeasuredText) -> str:
    column = row.first(OPERATIONS)
    found = operation_in(row.cells[column] if column else text.name)
    if found is None:
        says = f"{column} = {row.cells[column]!r} is not a known collective" if column else "no collective is named"
        raise ScenarioError(f"{row.place}: {says}; write all_reduce, all_gather, reduce_scatter, all_to_all, broadcast "
                            "or sendrecv in a column called collective")  # fmt: skip
    return found


def _algorithm(row: TableRow) -> str:
    column = row.first(FORCED)
    called = row.cells[column].lower() if column else "auto"
    if called not in (*ALGORITHMS, "auto"):
        known = ", ".join([*ALGORITHMS, "auto"])
        raise ScenarioError(f"{row.place}: {column} = {called!r} is not a known algorithm; write one of {known}")
    return ALGORITHMS.get(called, called)


def _whole(row: TableRow, columns: tuple[str, ...]) -> int:
    column = row.first(columns)
    if column is None:
        return 0
    value = row.number(column)
    if value != int(value):
        raise ScenarioError(f"{row.place}: {column} = {row.cells[column]} is not a whole number")
    return int(value)


register(
    MeasurementReader(
        name="collective-table", title="a table of sizes and times of collectives", sniff=sniff, load=load
    )
)
