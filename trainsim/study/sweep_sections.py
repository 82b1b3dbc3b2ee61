"""A sweep as a section: a line per point, and why some did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.study.trial import verdict, word
from trainsim.tables.blocks import Block, Section
from trainsim.tables.cells import Cell, Sign, Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from trainsim.study.sweep import Sweep
    from trainsim.study.trial import Measures, Outcome

MEASURED = (
    Column("step", Unit.TIME),
    Column("MFU", Unit.SHARE, priority=2),
    Column("bubble", Unit.SHARE, priority=3),
    Column("memory", Unit.BYTES, priority=1),
    Column("tokens/s/GPU", Unit.WHOLE, priority=4),
    Column(),
)
"""What a line says of a point; the columns that matter least go first where there is no room."""


def table_of(swept: Sweep) -> Section:
    """The changed values of each point with what came out; of those that did not run, each reason once."""
    reasons = list(dict.fromkeys(outcome.failure.reason for outcome in swept.outcomes if outcome.failure))
    rows = tuple((*_point(swept.axes, outcome), *_measured(outcome, reasons)) for outcome in swept.outcomes)
    blocks: list[Block] = [Table(columns=(*_axes(swept), *MEASURED), rows=rows)]
    if reasons:
        numbered = tuple((f"({number})", reason) for number, reason in enumerate(reasons, 1))
        blocks.append(Table(columns=(Column(), Column(wraps=True)), rows=numbered, title="Not run"))
    points = len(swept.outcomes)
    return Section("Sweep", tuple(blocks), f"{points} point{'' if points == 1 else 's'}")


def _axes(swept: Sweep) -> tuple[Column, ...]:
    """A column per axis, named by the last word of its path where that is its alone."""
    last = [path.rpartition(".")[2] for path in swept.axes]
    columns, every = [], [outcome.trial.changes for outcome in swept.outcomes]
    for path, name in zip(swept.axes, last, strict=True):
        values = [changes[path] for changes in every if path in changes]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        columns.append(Column(name if last.count(name) == 1 else path, align="right" if numbers else "left"))
    return tuple(columns)


def _point(axes: tuple[str, ...], outcome: Outcome[Measures]) -> tuple[Cell, ...]:
    changes = outcome.trial.changes
    return tuple(word(changes[path]) if path in changes else None for path in axes)


def _measured(outcome: Outcome[Measures], reasons: list[str]) -> tuple[Cell, ...]:
    value = outcome.value
    if value is None:
        number = reasons.index(outcome.failure.reason) + 1 if outcome.failure else 0
        return None, None, None, None, None, Sign(f"not run ({number})", "bad")
    return (
        value.step_time, value.mfu, value.bubble_fraction, value.peak_memory, value.tokens_per_s_per_gpu,
        verdict(value),
    )  # fmt: skip
