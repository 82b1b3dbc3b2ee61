"""A diagnosis as a person reads it: the cause first, then where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from trainsim.diagnosis.thresholds import threshold
from trainsim.tables.blocks import Bullets, Figure, Figures, Section
from trainsim.tables.cells import Cell, Sign, Tone, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_count, format_number_of, format_time

if TYPE_CHECKING:
    from trainsim.diagnosis.diagnosis import Diagnosis

SLIGHT = 1.02
"""The slowdown from which on a cell is marked, if the job does not count as straggling by it."""
MOST_WORKERS = 12
"""Rows of the table of workers."""


def sections_of(diagnosis: Diagnosis) -> list[Section]:
    """Everything that a terminal and a notebook show."""
    some = (build(diagnosis) for build in (_headline, _causes, _operations, _places, _workers, _steps, _remarks))
    return [section for section in some if section is not None]


def _headline(diagnosis: Diagnosis) -> Section:
    shape = diagnosis.shape
    degrees = " x ".join(f"{name}{size}" for name, size in
                         (("dp", shape.dp), ("dsp", shape.dsp), ("pp", shape.pp), ("tp", shape.tp), ("vpp", shape.vpp))
                         if size > 1 or name in ("dp", "pp"))  # fmt: skip
    steps = format_number_of(len(diagnosis.steps), "step")
    ratio = "mean step without launch delays over the mean ideal step"
    without = format_time(diagnosis.step_without_launch_delay_s)
    launch = f"mean of {steps}; {without} without launch delays"
    if isfinite(diagnosis.launch_slowdown):
        launch += f" ({diagnosis.launch_slowdown:.3f})"
    replayed = f"{format_count(diagnosis.operations_replayed)} operations replayed"
    figures = (
        Figure("cause", diagnosis.found[0].kind if diagnosis.found else "none", diagnosis.cause),
        Figure("slowdown", f"{diagnosis.slowdown:.3f}", ratio, _tone(diagnosis.slowdown)),
        Figure("step", format_time(diagnosis.step_s), launch),
        Figure("ideal step", format_time(diagnosis.ideal_step_s), "every operation takes the usual time for its type"),
        Figure("last stage", f"{diagnosis.last_stage_share:.0%}", "of the slowdown goes away if it is ideal"),
        Figure("slowest workers", f"{diagnosis.worst_workers_share:.0%}",
               f"disappears if the slowest 3 % ({format_number_of(len(diagnosis.worst_workers), 'worker')}) do"),
        Figure("job", f"{shape.gpus} GPUs", f"{degrees}; {replayed}"),
    )  # fmt: skip
    return Section(diagnosis.name, (Figures(figures),))


def _causes(diagnosis: Diagnosis) -> Section | None:
    if not diagnosis.found:
        return None
    table = Table(
        columns=(
            Column("cause"),
            Column("costs", Unit.TIME),
            Column("of the loss", Unit.SHARE),
            Column("why", wraps=True),
        ),
        rows=tuple((c.kind, c.saved, diagnosis.share(c.saved), c.sentence) for c in diagnosis.found),
    )
    note = "seconds per step saved without it; causes may hide or depend on each other, so the parts need not add up"
    return Section("Causes", (table, Bullets(diagnosis.suggestions)), note)


def _operations(diagnosis: Diagnosis) -> Section:
    table = _slowdowns("operation", diagnosis.by_operation, lambda name: name)
    return Section("By operation", (table,), "slowdown with these operations at their own times and all others ideal")


def _places(diagnosis: Diagnosis) -> Section:
    stages = _slowdowns("stage", diagnosis.by_stage, lambda stage: str(stage))
    replicas = _slowdowns("DP rank", diagnosis.by_replica, lambda rank: str(rank))
    return Section("By stage and replica", (stages, replicas))


def _workers(diagnosis: Diagnosis) -> Section:
    worst = sorted(diagnosis.by_worker, key=lambda score: -score.slowdown)[:MOST_WORKERS]
    twins = any(score.lane for score in diagnosis.by_worker)
    columns = (Column("DP rank", align="right"), *([Column("lane", align="right")] if twins else []),
               Column("stage", align="right"), Column("slowdown", align="right"))  # fmt: skip
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (str(one.dp_rank), *([str(one.lane)] if twins else []), str(one.stage), _marked(one.slowdown)) for one in worst
    )
    note = "the smaller of what its replica and its stage cause" + (
        f"; {len(worst)} of {len(diagnosis.by_worker)}, the slowest" if len(worst) < len(diagnosis.by_worker) else ""
    )
    return Section("By worker", (Table(columns=columns, rows=rows),), note)


def _steps(diagnosis: Diagnosis) -> Section:
    table = Table(
        columns=(
            Column("step", align="right"), Column("measured", Unit.TIME), Column("without launch delays", Unit.TIME),
            Column("ideal", Unit.TIME), Column("slowdown", align="right"),
        ),
        rows=tuple(
            (str(s.step), s.measured, s.without_launch_delay, s.ideal,
             f"{s.without_launch_delay / s.ideal:.3f}" if s.ideal else "")
            for s in diagnosis.steps
        ),
        extremes="measured",
    )  # fmt: skip
    return Section("By step", (table,))


def _remarks(diagnosis: Diagnosis) -> Section | None:
    return Section("Mind", (Bullets(diagnosis.remarks, "doubtful"),)) if diagnosis.remarks else None


def _slowdowns(header: str, values: Mapping[Any, float], name: Callable[[Any], str]) -> Table:
    rows = tuple((name(key), _marked(value)) for key, value in values.items())
    return Table(
        columns=(Column(header), Column("slowdown", align="right")),
        rows=rows,
        extremes="slowdown" if len(rows) > MOST_WORKERS else "",
    )


def _marked(slowdown: float) -> Sign:
    return Sign(f"{slowdown:.3f}", _tone(slowdown))


def _tone(slowdown: float) -> Tone:
    return "bad" if slowdown >= threshold("straggling") else "doubtful" if slowdown >= SLIGHT else ""
