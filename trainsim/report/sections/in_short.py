"""The step in two sentences: what takes its time, and where to ask what would shorten it."""

from __future__ import annotations

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.kinds import titles
from trainsim.report.sections import PAGE, section
from trainsim.tables.blocks import Block, Paragraph, Section, Verbatim
from trainsim.units import format_time

NAMED, WORTH = 3, 0.02
"""Rows of the breakdown that are named, and the part of the step from which on one is worth a word."""
USEFUL = ("compute", "prefill", "decode", "scoring")
"""Rows of the breakdown that are forward and backward passes."""


@section("in short", place=1, shown_by=(PAGE,), needs=Analysis)
def in_short(result: Analysis) -> Section:
    """The largest rows of the breakdown as a sentence, whether it fits, and the commands that say more."""
    explain = "What each cause costs, and how much which change of the scenario would save:"
    blocks: list[Block] = [Paragraph(" ".join(_sentences(result))), Paragraph(explain, "quiet")]
    commands = ["trainsim explain SCENARIO"]
    if not result.memory.fits:
        commands.append("trainsim show memory SCENARIO   # what would make it fit")
    return Section("In short", (*blocks, Verbatim("\n".join(commands))))


def _sentences(result: Analysis) -> list[str]:
    step = result.step_time or 1.0
    rows = sorted(result.breakdown.items(), key=lambda row: -row[1])
    largest = [(name, value) for name, value in rows if value > WORTH * step][:NAMED]
    words = titles(result.lanes.stages)
    named = ", ".join(f"{value / step:.0%} {words[name]} ({name})" for name, value in largest)
    out = [f"A step takes {format_time(result.step_time)}: {named}."] if named else []
    useful = sum(result.breakdown.get(name, 0.0) for name in USEFUL)
    lost = [(name, value) for name, value in rows if name not in USEFUL]
    if lost and lost[0][1] > WORTH * step:
        name, value = lost[0]
        beside = f"{1 - useful / step:.0%} of the step is not forward and backward"
        out.append(f"{beside}; the largest part of that is {name}, {format_time(value, like=step)}.")
    return out
