"""The scores as tables: errors by source, the worst rows, and the rows that could not be simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from trainsim.tables.blocks import Paragraph, Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table
from trainsim.validation.scores import RunScore, by_source, errors_of
from trainsim.validation.summary import errors, overall, room

WORST = 8
"""Rows that are listed by name."""


def sections(scores: Sequence[RunScore]) -> tuple[Section, ...]:
    """All that is told of *scores*."""
    found = [_table(scores), Section("", (Paragraph(overall(scores)), *_room(scores)))]
    if worst := _worst(scores):
        found.append(worst)
    if refused := _refused(scores):
        found.append(refused)
    return tuple(found)


def _table(scores: Iterable[RunScore]) -> Section:
    columns = (
        Column("source"),
        Column("runs", Unit.WHOLE),
        Column("scored", Unit.WHOLE),
        Column("median error", Unit.SHARE),
        Column("90 % below", Unit.SHARE),
        Column("bias", Unit.CHANGE),
        Column("peaks", Unit.WHOLE, priority=1),
        Column("median error", Unit.SHARE, priority=1),
        Column("bias", Unit.CHANGE, priority=1),
        Column("what", wraps=True, priority=2),
    )
    rows = tuple(_row(source, of_one) for source, of_one in by_source(scores).items())
    return Section("Step time and peak memory by source", (Table(columns=columns, rows=rows),))


def _row(source: str, scores: list[RunScore]) -> tuple[str | float | None, ...]:
    times = errors(errors_of(scores))
    peaks = errors(error for score in scores if (error := score.memory_error) is not None)
    time = (times.runs, times.median, times.ninety, times.bias) if times else (0, None, None, None)
    memory = (peaks.runs, peaks.median, peaks.bias) if peaks else (None, None, None)
    return (source, len(scores), *time, *memory, scores[0].run.text("source"))


def _room(scores: Sequence[RunScore]) -> Iterator[Paragraph]:
    """Whether those that ran out of memory were foreseen, where a table has such."""
    if found := room(scores):
        yield Paragraph(
            f"Out of memory or not: right for {found.right} of {found.runs} runs ({found.right / found.runs:.1%}). Of "
            f"{found.ran_out} that ran out {found.missed} were taken to fit ({found.missed / found.ran_out:.1%}), of "
            f"{found.runs - found.ran_out} that did not {found.alarms} were taken not to."
        )


def _worst(scores: Iterable[RunScore]) -> Section | None:
    listed = sorted((s for s in scores if s.error is not None), key=lambda s: -abs(s.error or 0.0))[:WORST]
    if not listed:
        return None
    columns = (
        Column("run"),
        Column("error", Unit.CHANGE),
        Column("published", Unit.TIME),
        Column("predicted", Unit.TIME),
        Column("model", priority=1),
        Column("GPUs", Unit.WHOLE),
        Column("GPU", priority=1),
        Column("profile", priority=1),
    )
    rows = tuple(
        (s.run.id, s.error, s.published, s.predicted, s.run.text("model_name"), s.run.whole("num_gpus"),
         s.run.text("gpu"), s.software)
        for s in listed
    )  # fmt: skip
    return Section("Furthest off", (Table(columns=columns, rows=rows),))


def _refused(scores: Iterable[RunScore]) -> Section | None:
    lines = list(_reasons(scores))
    if not lines:
        return None
    columns = (Column("runs", Unit.WHOLE), Column("first"), Column("why", wraps=True))
    return Section("Not replayed", (Table(columns=columns, rows=tuple(lines)),))


def _reasons(scores: Iterable[RunScore]) -> Iterator[tuple[int, str, str]]:
    told = [(score.reason, score.run.id) for score in scores if score.reason]
    first = dict(reversed(told))
    for reason, count in Counter(reason for reason, _ in told).most_common():
        yield count, first[reason], reason
