"""The page ``docs/benchmarks.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmarks import cliffs, phases, table

INTRO = """\
Made by `python -m benchmarks --markdown`. Commands are whole processes of a fresh Python that keeps byte code: start,
imports, simulation, Gantt chart, Chrome trace, page and `result.json`. Processor time is that of all processes of a
command, system time included, and memory the most that one of them holds; medians of three runs, or one of the
longest."""
INSIDE = """\
The closed form and a point of a sweep are timed in a warm process. The engine is timed on synthetic steps, per
instruction; `benchmarks/engine.py` has more of them. Plans: [planner](planner.md#how-quick-it-is)."""
PHASES = """\
Seconds of user CPU, medians (`python -m benchmarks.phases`)."""
BEFORE = """\
`before → now (ratio)`: commit {before}, the last one before the program was made quicker, runs by turns with this one
in the same minutes. It writes the chart as SVG too, which now has to be asked for."""
CLIFFS = """\
What special things cost in the engine: a job with one of them in ratio to the same job without it, by turns in one
process, user CPU, medians (`python -m benchmarks.cliffs`). The job is Llama-2-70B on 128 GPUs, 128 micro-batches of
8 stages, unless the case says otherwise. A straggler splits what is alike into classes that are simulated one by one;
*per class* divides both times by their number of classes."""


def page(
    rows: Sequence[table.Row],
    found: Sequence[phases.Phases],
    special: Sequence[cliffs.Found],
    *,
    where: str,
    before: str,
    note: str = "",
) -> str:
    """The whole page: targets, time by phase, cliffs; *where* it was measured, and the commit *before*."""
    parts = [
        ["# How quick it is"],
        *([[note]] if note else []),
        [f"Measured on {where}."],
        [INTRO],
        table.table(rows),
        [INSIDE],
        ["## By phase"],
        [PHASES, *([BEFORE.format(before=before)] if before else [])],
        phases.table(found),
        ["## Cliffs"],
        [CLIFFS],
        cliffs.table(special),
    ]
    return "\n".join(_apart(parts))


def _apart(parts: Iterable[Sequence[str]]) -> Iterator[str]:
    """Parts with an empty line behind each but the last, which ends the text."""
    for k, part in enumerate(parts):
        yield from [""] if k else []
        yield from part
    yield ""
