"""A plan as sections for a terminal or a notebook: the best layouts, why the others lose, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import join
from typing import TYPE_CHECKING

from trainsim.analysis.training_cost import in_days
from trainsim.study.planning.objectives import objectives
from trainsim.study.planning.reasons import grouped_reasons
from trainsim.study.trial import verdict, word
from trainsim.tables.blocks import Block, Bullets, Paragraph, Section
from trainsim.tables.cells import Cell, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_bytes, format_count, format_time

if TYPE_CHECKING:
    from trainsim.study.planning.answer import Choice, Plan
    from trainsim.study.planning.sizing import Size, Sizing

REASONS = 3
"""Reasons for refusing layouts that are worth a line."""


def plan_sections(planned: Plan) -> list[Section]:
    """What was looked at, the best layouts, and what to write to get the first of them."""
    looked = Section(planned.base.name, tuple(_looked_at(planned)))
    if not planned.choices and planned.interrupted:
        return [looked]
    if not planned.choices:
        return [looked, Section("Nothing fits", (Paragraph(planned.nothing, "bad"),))]
    words = objectives[planned.objective].words
    return [
        looked,
        Section(f"Best layouts: least {words}", tuple(_best(planned)), "each simulated"),
        Section("To use the first one", (Paragraph(_command(planned.best)),)),
    ]


def _looked_at(planned: Plan) -> Iterator[Block]:
    if planned.interrupted and not planned.choices:
        yield Paragraph(planned.nothing, "doubtful")
    elif planned.interrupted:
        yield Paragraph("interrupted: the best layouts found so far", "doubtful")
    counts = (
        (planned.too_large, "do not fit in memory"),
        (planned.slower, _not_run(planned)),
        (sum(planned.refused.values()), "were rejected"),
        (planned.run, "were simulated"),
    )
    listed = "; ".join(f"{count:,} {words}" for count, words in counts if count)
    if listed or not planned.interrupted:
        yield Paragraph(f"{planned.layouts:,} layouts: {listed}." if listed else "No layout.")
    for words in planned.assumed:
        yield Paragraph(words, "doubtful")
    reasons = [f"{count:,} x {reason}" for reason, count in grouped_reasons(planned.refused)[:REASONS]]
    if reasons:
        yield Bullets(tuple(reasons), "quiet")


def _not_run(planned: Plan) -> str:
    if planned.interrupted:
        return "were not reached"
    least = "memory" if planned.objective == "memory" else "time"
    return f"cannot be the best (lower bound on {least} too high)"


def _best(planned: Plan) -> Iterator[Block]:
    money = any(choice.ran.measured.days is not None for choice in planned.choices)
    paid = any(choice.ran.measured.cost is not None for choice in planned.choices)
    like = max(choice.ran.measured.step_time for choice in planned.choices)
    columns = [
        Column("", align="right"), Column("layout", wraps=True), Column("step", Unit.TIME, like=like),
        Column("", Unit.CHANGE, empty="best"), Column("MFU", Unit.SHARE), Column("bubble", Unit.SHARE, priority=2),
        Column("exposed", Unit.TIME, priority=3, like=like), Column("memory", Unit.BYTES, priority=1),
        *([Column("days")] if money else []), *([Column("cost")] if paid else []), Column(priority=1),
    ]  # fmt: skip
    rows = [(str(n), *_row(choice, money=money, paid=paid)) for n, choice in enumerate(planned.choices, 1)]
    details = tuple(f"compared with the best: {choice.why}" if choice.why else "" for choice in planned.choices)
    yield Table(columns=tuple(columns), rows=tuple(rows), details=details)
    yield Paragraph(_now(planned))
    if planned.rest is not None and not planned.interrupted:
        unit = Unit.BYTES if planned.objective == "memory" else Unit.TIME
        if planned.objective in ("time", "memory"):
            yield Paragraph(f"All other layouts need at least {unit.format(planned.rest)}.", "quiet")


def _row(choice: Choice, *, money: bool, paid: bool) -> tuple[Cell, ...]:
    measured = choice.ran.measured
    return (
        choice.layout.title, measured.step_time, choice.over_best, measured.mfu, measured.bubble_fraction,
        choice.exposed, measured.needed_memory,
        *((in_days(measured.days) if measured.days is not None else None,) if money else ()),
        *((format_count(measured.cost) if measured.cost is not None else None,) if paid else ()),
        verdict(measured),
    )  # fmt: skip


def _now(planned: Plan) -> str:
    """How the scenario as it is compares."""
    now = planned.now
    if now is None:
        not_now = f"cannot run: {planned.not_now}" if planned.not_now else "was not run."
        return f"The scenario itself {not_now}"
    measured = now.ran.measured
    if now.layout == planned.best.layout:
        return "The first one is the scenario itself."
    fits = "" if measured.fits else ", and does not fit"
    what = format_time(measured.step_time)
    what += f" and {format_bytes(measured.needed_memory)}" if planned.objective == "memory" else ""
    return f"The scenario itself ({now.layout.title}): {what}, {now.over_best:+.1%}{fits}."


def _command(choice: Choice) -> str:
    """The changes as the command line takes them."""
    if not choice.changes:
        return "no change needed"
    values = {path: word(value).replace(" ", "") for path, value in choice.changes.items()}
    return join(part for path, value in values.items() for part in ("--set", f"{path}={value}"))


def sizing_sections(sizing: Sizing) -> list[Section]:
    """How many GPUs are enough, and what each machine size that was tried takes."""
    answer = sizing.answer
    paid = any(size.best and size.best.ran.measured.cost is not None for size in sizing.sizes)
    rows = [_size(size, sizing.serves(size), paid=paid) for size in sizing.sizes]
    columns = (
        Column("GPUs", Unit.WHOLE), Column("best layout", wraps=True), Column("step", Unit.TIME), Column("days"),
        Column("GPU-hours", Unit.COUNT, priority=1), *([Column("cost")] if paid else []), Column(),
    )  # fmt: skip
    if answer is None or answer.best is None:
        words = f"No machine of up to {sizing.most:,} GPUs is fast enough for {in_days(sizing.days)}."
        told = Paragraph(words, "bad")
    else:
        measured = answer.best.ran.measured
        likely = ""
        if measured.days_low is not None and measured.days_high is not None:
            likely = f", likely {in_days(measured.days_low, measured.days_high)}"
        nodes = f"{answer.nodes:,} node{'s' if answer.nodes > 1 else ''}"
        words = f"{answer.gpus:,} GPUs ({nodes}) train it in {in_days(measured.days or 0.0)}{likely}."
        told = Paragraph(words, "strong")
    table = Table(columns=columns, rows=tuple(rows))
    stopped = [Paragraph("interrupted: not all machine sizes were tried", "doubtful")] if sizing.interrupted else []
    out = [Section(f"{sizing.base.name}: done in {in_days(sizing.days)}", (told, *stopped, table))]
    if answer is not None and len(answer.plan.choices) > 1:
        out.append(Section(f"Best layouts of {answer.gpus:,} GPUs", tuple(_best(answer.plan)), "each simulated"))
    return out


def _size(size: Size, serves: bool, *, paid: bool) -> tuple[Cell, ...]:
    failed = Sign("interrupted", "doubtful") if size.plan.interrupted else None
    if size.best is None:
        words = size.plan.nothing
        return size.gpus, words, None, None, None, *([None] if paid else []), failed or Sign("nothing fits", "bad")
    measured = size.best.ran.measured
    return (
        size.gpus, size.best.layout.title, measured.step_time, in_days(measured.days or 0.0), measured.gpu_hours,
        *([format_count(measured.cost) if measured.cost is not None else None] if paid else []),
        Sign("in time", "good") if serves else failed or Sign("too long", "quiet"),
    )  # fmt: skip
