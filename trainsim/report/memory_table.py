"""Memory for a terminal: what each stage holds at its peak, when that is, and what is not counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainsim.analysis.memory import CATEGORIES
from trainsim.analysis.moments import at_peak
from trainsim.report.memory_words import verdicts
from trainsim.report.serial import memory_dict
from trainsim.report.style import GIB, MEMORY
from trainsim.report.text import some, table, titled
from trainsim.tables.prose import Prose
from trainsim.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from trainsim.result.result import Result

SHORT = {
    "weights": "weights", "gradients": "grads", "optimizer": "optim.", "gathered": "gath.", "activations": "activ.",
    "logits": "logits", "buffers": "buff.", "temporary": "temp.", "slack": "slack", "framework": "frame.",
}  # fmt: skip
"""Categories as heads of columns, so that all of them go into 80 columns."""


def memory_table(result: Result) -> Group:
    """Two tables with a line per stage, the hosts and drives if they hold anything, and what is not counted."""
    from rich.console import Group

    use = result.memory
    lines = (Prose(words, "" if words.startswith("fits") else "bold red") for words in verdicts(use))
    return Group(
        titled(result.name, Group(*lines)),
        titled("What each stage holds at its peak (GiB; its fullest rank)", _parts(result)),
        titled("When it peaks", _moments(result)),
        titled("Not counted", Prose("; ".join(use.not_counted), "dim")),
    )


def _parts(result: Result) -> RenderableType:
    stages = result.memory.per_stage
    seen = [category for category in CATEGORIES if any(stage.part(category) for stage in stages)]
    grid = table("l" + "r" * (len(seen) + 1), space=1)
    grid.add_row("stage", *(f"[{MEMORY[c]}]{SHORT[c]}" for c in seen), "peak")
    for k in some([stage.peak for stage in stages]):
        if k is None:
            grid.add_row("...")
            continue
        stage = stages[k]
        over = "bold red" if stage.needed > result.memory.capacity else "bold"
        parts = (f"{stage.part(c) / GIB:.1f}" if stage.part(c) else "-" for c in seen)
        grid.add_row(str(stage.stage), *parts, f"[{over}]{stage.peak / GIB:.1f}")
    return grid


def _moments(result: Result) -> RenderableType:
    use = result.memory
    grid = table("lrrrLl")
    grid.add_row("", "peak", "full", "at", "what it does", "largest", style="dim")
    for k in some([stage.peak for stage in use.per_stage]):
        if k is None:
            grid.add_row("...")
            continue
        stage = use.per_stage[k]
        doing = Prose(str(at_peak(result.lanes, stage)))
        full, at = f"{stage.peak / use.capacity:.0%}", format_time(stage.peak_at_s)
        grid.add_row(f"stage {stage.stage}", format_bytes(stage.peak), full, at, doing, stage.largest)
    return grid


def memory_data(result: Result) -> dict[str, Any]:
    """The same as plain data: ``memory`` of ``result.json``, and the moment of each peak in words."""
    found, stages = memory_dict(result), result.memory.per_stage
    per_stage = [
        {**one, "moment": str(at_peak(result.lanes, stage))}
        for one, stage in zip(found["per_stage"], stages, strict=True)
    ]
    return {**found, "per_stage": per_stage}
