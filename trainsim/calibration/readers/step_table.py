"""
Measured steps as a table: a column per field of the scenario that differs, by its dotted path or its short name, and
``step_time_s`` or ``tokens_per_s_per_gpu``.
"""

from __future__ import annotations

from trainsim.calibration.measurements import MeasuredStep, Measurements
from trainsim.calibration.reader import MeasuredText, MeasurementReader, register
from trainsim.calibration.tables import TableRow, header_of, rows_of
from trainsim.documents.document import value_of
from trainsim.errors import ScenarioError, nearest

STEP = ("step_time_s", "step_time", "step_s", "iteration_time_s")
RATE = ("tokens_per_s_per_gpu", "tokens_per_second_per_gpu")
NAMES = ("name", "id", "run")
REMARKS = ("notes", "note", "comment", "date", "source")
SHORT = {
    "model": "model",
    "framework": "framework",
    "topology": "cluster.topology",
    "gpu": "cluster.gpu",
    "nodes": "cluster.nodes",
    "gpus": "cluster.gpus",
    **{degree: f"parallel.{degree}" for degree in ("tp", "pp", "dp", "cp", "ep", "sequence_parallel")},
    "schedule": "pipeline.schedule",
    "chunks": "pipeline.chunks",
    "strategy": "sharding.strategy",
    **{
        key: f"training.{key}"
        for key in (
            "micro_batch", "global_batch", "gradient_accumulation", "sequence_length", "precision", "recompute",
            "attention",
        )
    },
}  # fmt: skip
"""Fields by the last word of their path."""


def load(text: MeasuredText) -> Measurements:
    """A step per line. Raises ScenarioError that names the line and the column."""
    columns = {name: _path(name, text) for name in header_of(text) if name not in (*STEP, *RATE, *NAMES, *REMARKS)}
    if twice := next((path for path in columns.values() if list(columns.values()).count(path) > 1), None):
        named = " and ".join(name for name, path in columns.items() if path == twice)
        raise ScenarioError(f"{text.shown}: columns {named} are both {twice}; keep one")
    steps = tuple(_step(row, columns) for row in rows_of(text))
    if not steps:
        raise ScenarioError(f"{text.shown}: a header and no line below it; write a line per measured step")
    return Measurements(steps=steps)


def sniff(text: MeasuredText) -> float:
    """Sure where the header has a time of steps, or their rate."""
    return 0.9 if {*STEP, *RATE} & set(header_of(text)) else 0.0


def _path(name: str, text: MeasuredText) -> str:
    if name in SHORT or "." in name:
        return SHORT.get(name, name)
    near = nearest(name, [*SHORT, *STEP, *RATE])
    hint = f"did you mean {near!r}? " if near else ""
    raise ScenarioError(
        f"{text.shown}: column {name!r} is not a field of a scenario; {hint}Write its dotted path, such as "
        f"training.micro_batch, one of {', '.join(SHORT)}, or notes"
    )


def _step(row: TableRow, columns: dict[str, str]) -> MeasuredStep:
    row.only((*STEP, *RATE))
    seconds, rate = row.first(STEP), row.first(RATE)
    if seconds is None and rate is None:
        raise ScenarioError(
            f"{row.place}: neither {STEP[0]} nor {RATE[0]} is given; fill one in, or leave the line out"
        )
    name = row.first(NAMES)
    return MeasuredStep(
        changes={path: value_of(row.cells[column]) for column, path in columns.items() if column in row.cells},
        step_seconds=row.number(seconds) if seconds else None,
        tokens_per_s_per_gpu=row.number(rate) if rate and not seconds else None,
        place=row.place,
        name=row.cells[name] if name else "",
    )


register(MeasurementReader(name="step-table", title="a table of measured steps", sniff=sniff, load=load))
