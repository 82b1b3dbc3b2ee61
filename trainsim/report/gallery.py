"""
The page of all schedules, a table and a chart of each, from replays.

``python -m trainsim.report.gallery docs/schedules.md`` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path

from trainsim.replaying import Replay, replay, schedule
from trainsim.replaying.replay import STEADY
from trainsim.schedules import Work, schedules
from trainsim.schedules.cells import Cell
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.slices import SLICES
from trainsim.schedules.traits import Traits
from trainsim.tables.blocks import Paragraph, Section, Verbatim
from trainsim.tables.prose import unmarked
from trainsim.tables.table import Column, Table
from trainsim.units import format_number_of

RANKS, MICROBATCHES = 4, 8
GROUPS = {"seq1f1b": 2, "terapipe": 2, "llama3": 8}
"""Groups that show what is special about a schedule; the others have their usual one."""
COLUMNS, READABLE, TERMINAL = 4, 2, 74
"""Characters of a chart per unit of time, the fewest that can be read, and those of a chart in a terminal."""

INTRO = """# Schedules

Every registered pipeline schedule on {ranks} ranks with {microbatches} microbatches, where forward, input gradient and
weight gradient of all layers of a rank take 1 each and messages no time. This page is made by
`python -m trainsim.report.gallery docs/schedules.md`.

Three fractions are all called *the bubble*: of the **makespan**, idle time of all ranks over the time from the first
pass to the last; of the **span**, idle time of the busiest rank over the longest time that a rank takes from its first
pass to its last; of the **period**, the same over the time per step when steps follow each other without a barrier.
**Activations** are the most that each rank holds at once, in microbatches of all its layers, from the start of a
forward to the end of its backward or weight gradient. A rank holds its **parameters** as often as the table says.

In the charts a line is a rank, and a pass is `F3` (forward of microbatch 3), `B3` (backward), `I3` or `W3` (input and
weight gradient on their own). Letters are small for the second chunk of a rank; in a two-way pipeline that is the
replica whose microbatches go up the ranks. Two passes that run at once stand together. Dots are idle time.
"""


def page() -> str:
    """The page, as Markdown."""
    steps = {name: example(name)[0] for name in schedules}
    lines = [INTRO.format(ranks=RANKS, microbatches=MICROBATCHES), *_table(steps), ""]
    for name, step in steps.items():
        lines += [f"## {name}", "", _summary(name), "", "```text", *_chart(name, step), "```", ""]
    return "\n".join(lines)


def example(
    name: str, ranks: int = RANKS, microbatches: int = MICROBATCHES, *, chunks: int | None = None
) -> tuple[Replay, int]:
    """A schedule in which forward, input and weight gradient of all layers of a rank take 1 each, replayed; and how
    many slices its microbatches are cut into."""
    facts = schedules.traits(name)
    chunks, slices = chunks or _chunks(facts), _slices(name, facts)
    alone = 1.0 / (1 if facts.replicas > 1 else chunks) / slices
    order = schedule(name, ranks, microbatches, chunks, group=GROUPS.get(name))
    return replay(order, forward=alone, input_gradient=alone, weight_gradient=alone, p2p=0.0), slices


def schedule_section(name: str, *, ranks: int, microbatches: int, chunks: int | None = None) -> Section:
    """A schedule for a terminal: a chart that fits, its bubble, what it holds and where it is from.

    Raises what `schedule` raises for sizes that it cannot have.
    """
    name = schedules.canonical(name)
    facts = schedules.traits(name)
    chunks = chunks or _chunks(facts)
    step, slices = example(name, ranks, microbatches, chunks=chunks)
    per_unit = max(min(int(TERMINAL / step.makespan), COLUMNS), READABLE)
    share = (1 if facts.replicas > 1 else chunks) * slices
    rows = (
        ("bubble", f"{step.bubble.fraction:.1%} of the makespan, {step.bubble.span_fraction:.1%} of the span"),
        ("activations", f"{', '.join(f'{count / share:g}' for count in step.in_flight)} microbatches per rank at most"),
        ("parameters", f"held {facts.replicas} x, in {format_number_of(chunks, 'chunk')}"),
        ("needs", facts.needs),
        ("source", facts.source),
    )
    table = Table(columns=(Column(), Column(wraps=True)), rows=tuple(row for row in rows if row[1]))
    chart = "\n".join(map(_both_ends, _chart(name, step, per_unit)))
    note = f"{ranks} ranks, {microbatches} microbatches; F, I and W of a rank's layers take 1 each, messages no time"
    return Section(name, (Paragraph(unmarked(_about(name))), Verbatim(chart), table), note)


def order_of(name: str, *, ranks: int, microbatches: int, chunks: int | None = None) -> list[list[str]]:
    """The order of each rank in PyTorch's cells.

    >>> order_of("1f1b", ranks=2, microbatches=2)[1]
    ['1F0', '1B0', '1F1', '1B1']
    """
    name = schedules.canonical(name)
    rows = schedule(name, ranks, microbatches, chunks or _chunks(schedules.traits(name)), group=GROUPS.get(name))
    return [list(row) for row in rows]


def _both_ends(line: str) -> str:
    """The start and the end of a line that is too long for a terminal."""
    if len(line) <= TERMINAL + 4:
        return line
    half = TERMINAL // 2
    return f"{line[:half]} ~ {line[-half:]}"


def _chunks(facts: Traits) -> int:
    return facts.chunks or 2


def _slices(name: str, facts: Traits) -> int:
    return GROUPS.get(name, SLICES) if facts.sliced else 1


def _table(steps: dict[str, Replay]) -> Iterator[str]:
    bubbles = ("bubble of the makespan", "of the span", "of the period")
    yield f"| {' | '.join(('schedule', 'stages', *bubbles, 'activations', 'parameters', 'needs', 'source'))} |"
    yield "|---" * 9 + "|"
    for name, step in steps.items():
        facts = schedules.traits(name)
        bubble = step.bubble
        period = _endless(name, step) if facts.asynchronous else bubble.period_fraction
        fractions = (bubble.fraction, bubble.span_fraction, period)
        share = (1 if facts.replicas > 1 else _chunks(facts)) * _slices(name, facts)
        held = ", ".join(f"{count / share:g}" for count in step.in_flight)
        chunks = "" if _chunks(facts) == 1 else f", {_chunks(facts)} chunks"
        cells = (
            f"[{name}](#{name})",
            f"{'V' if facts.placement is StagePlacement.V else facts.placement}{chunks}",
            *(f"{abs(fraction):.1%}" for fraction in fractions),
            held,
            f"× {facts.replicas}",
            facts.needs or "–",
            facts.source,
        )
        yield f"| {' | '.join(cells)} |"


def _endless(name: str, step: Replay) -> float:
    """The bubble of a stream of microbatches that is never flushed: of what one more step's worth of them adds."""
    long, longer = (
        replay(schedule(name, RANKS, steps * MICROBATCHES), p2p=0.0).makespan for steps in (STEADY - 1, STEADY)
    )
    return 1.0 - max(step.busy) / (longer - long)


def _about(name: str) -> str:
    return (getdoc(schedules[name]) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")


def _summary(name: str) -> str:
    text = _about(name)
    return f"{text} Here `group` is {GROUPS[name]}." if name in GROUPS else text


def _chart(name: str, step: Replay, columns: int = COLUMNS) -> Iterator[str]:
    width = round(step.makespan * columns)
    slices = _slices(name, schedules.traits(name))
    for rank, row in enumerate(step.order.rows):
        line = ["."] * width
        for cells, start, end in zip(row, step.starts[rank], step.ends[rank], strict=True):
            first, last = round(float(start) * columns), round(float(end) * columns)
            text = "".join(_label(cell, step.order.ranks, slices) for cell in cells)
            line[first:last] = text.ljust(last - first, "-")[: last - first]
        yield f"{rank} {''.join(line)}"


def _label(cell: Cell, ranks: int, slices: int) -> str:
    letter = str(Work(cell.work))
    return (letter.lower() if cell.stage // ranks % 2 else letter) + str(cell.microbatch // slices)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schedules.md").write_text(page(), encoding="utf-8")
