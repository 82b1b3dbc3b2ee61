"""What would make a step shorter, as sections for a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainsim.study.losses import WORDS
from trainsim.study.trial import verdict
from trainsim.tables.blocks import Block, Paragraph, Section
from trainsim.tables.cells import Bar, Cell, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_time

if TYPE_CHECKING:
    from trainsim.study.explain import Explanation, Saving

LISTED = 8
"""Changes that are listed."""
WORTH = 5e-4
"""Part of the step from which on a cause is worth a line."""
SAVED, LOST, PATH = "#2e8b57", "#8c8c8c", "#c0142b"


def explanation(explained: Explanation) -> list[Section]:
    """Losses, the ranked list of changes, what the step hangs on, and the critical path."""
    fits = "fits in memory" if explained.fits else "does not fit in memory (`trainsim show memory` says what would)"
    title = f"step {format_time(explained.step)} at detail block; {fits}; {explained.slowest}"
    return [
        Section(explained.name, (Paragraph(title),)),
        _losses(explained),
        _actions(explained),
        Section("What a 10 % faster and a twice as fast part would save", (_resources(explained),)),
        Section("Critical path, by kind", (_path(explained),)),
    ]


def _losses(explained: Explanation) -> Section:
    lost, step = explained.losses, explained.step
    causes = sorted(lost.causes.items(), key=lambda item: -item[1])
    rows: list[tuple[Cell, ...]] = [("work", lost.work, lost.work / step, None, Sign("of the mean rank"))]
    rows += [
        (cause, value, value / step, Bar.of(abs(value) / step, LOST), Sign(WORDS[cause]))
        for cause, value in causes
        if abs(value) > WORTH * step
    ]
    columns = (Column(), Column("", Unit.TIME, like=step), Column("", Unit.SHARE), Column(width=12), Column(wraps=True))
    title = f"Where {format_time(lost.lost)} of {format_time(step)} are lost"
    return Section(title, (Table(columns=columns, rows=tuple(rows)),))


def _actions(explained: Explanation) -> Section:
    """The changes worth making; under each what to write on the command line."""
    best = explained.actions[:LISTED]
    blocks: list[Block] = [Paragraph("none of the changes tried saves anything")]
    if best:
        table = Table(
            columns=(
                Column("", align="right"),
                Column("change", wraps=True),
                Column("saves", Unit.TIME, like=explained.step),
                Column("", Unit.SHARE),
                Column("memory", Unit.BYTES),
                Column("full", Unit.PERCENT, priority=1),
                Column(),
            ),
            rows=tuple(_action(explained, number, saving) for number, saving in enumerate(best, 1)),
            details=tuple(saving.command for saving in best),
        )
        blocks = [table]
    if explained.refused:
        blocks.append(Paragraph(f"not possible here: {'; '.join(explained.refused)}", "quiet"))
    note = "each was run; savings are per token: for as many sequences as a step trains on now"
    return Section("What would help most", tuple(blocks), note)


def _action(explained: Explanation, number: int, saving: Saving) -> tuple[Cell, ...]:
    title = saving.title if saving.same_training else f"{saving.title} (changes the training)"
    part = saving.saves / explained.step
    then = saving.then
    return f"{number}.", title, saving.saves, part, then.peak_memory, then.full, verdict(then)


def _resources(explained: Explanation) -> Table:
    columns = (
        Column(wraps=True),
        Column("10 %", Unit.TIME, like=explained.step),
        Column("", Unit.SHARE),
        Column(width=10),
        Column("twice", Unit.TIME, like=explained.step),
        Column("", Unit.SHARE),
        Column("of path", Unit.SHARE, priority=1),
    )
    return Table(columns=columns, rows=tuple(_faster(explained)))


def _faster(explained: Explanation) -> Iterator[tuple[Cell, ...]]:
    """A line for each resource, the slowest GPU, and the best move of one layer."""
    twice = {saving.title: saving for saving in explained.resources}
    for saving in explained.sensitivities:
        part, then = saving.saves / explained.step, twice.get(saving.title)
        more = (None, None) if then is None else (then.saves, then.saves / explained.step)
        bar = Bar.of(min(1.0, 5 * abs(part)), SAVED if part >= 0 else PATH)  # 10 % of everything fills half of it
        yield saving.title, saving.saves, part, bar, *more, saving.share


def _path(explained: Explanation) -> Table:
    columns = (Column(), Column("", Unit.TIME, like=explained.step), Column("", Unit.SHARE), Column(width=20))
    causes = (cause for cause in explained.critical_path if cause.share > WORTH)
    rows = tuple((cause.kind, cause.seconds, cause.share, Bar.of(cause.share, PATH)) for cause in causes)
    return Table(columns=columns, rows=rows)
