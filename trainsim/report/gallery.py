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
from trainsim.replaying.result import STEADY
from trainsim.schedules import Work, schedules
from trainsim.schedules.cells import Cell
from trainsim.schedules.placement import StagePlacement
from trainsim.schedules.slices import SLICES
from trainsim.schedules.traits import Traits

RANKS, MICROBATCHES = 4, 8
GROUPS = {"seq1f1b": 2, "terapipe": 2, "llama3": 8}
"""Groups that show what is special about a schedule; the others have their usual one."""
COLUMNS = 4
"""Characters of a chart per unit of time."""

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


def _summary(name: str) -> str:
    text = (getdoc(schedules[name]) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
    return f"{text} Here `group` is {GROUPS[name]}." if name in GROUPS else text


def _chart(name: str, step: Replay) -> Iterator[str]:
    width = round(step.makespan * COLUMNS)
    slices = _slices(name, schedules.traits(name))
    for rank, row in enumerate(step.order.rows):
        line = ["."] * width
        for cells, start, end in zip(row, step.starts[rank], step.ends[rank], strict=True):
            first, last = round(float(start) * COLUMNS), round(float(end) * COLUMNS)
            text = "".join(_label(cell, step.order.ranks, slices) for cell in cells)
            line[first:last] = text.ljust(last - first, "-")[: last - first]
        yield f"{rank} {''.join(line)}"


def _label(cell: Cell, ranks: int, slices: int) -> str:
    letter = str(Work(cell.work))
    return (letter.lower() if cell.stage // ranks % 2 else letter) + str(cell.microbatch // slices)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schedules.md").write_text(page(), encoding="utf-8")
