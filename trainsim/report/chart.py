"""The Gantt chart for a terminal, and for a file that a person can read in a diff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainsim.report.scene import actors

if TYPE_CHECKING:
    from trainsim.result import Result


def chart(result: Result, ranks: Sequence[int] | None = None, *, column: float | None = None) -> str:
    """A line per rank; each column is *column* seconds (by default, 100 columns in all): the name of the pass that
    fills it (``F3``, ``B0.1`` for chunk 1), dashes while it goes on, a dot where the rank waits, ``=`` for the rest of
    the step."""
    stages = actors(result, result.ranks(ranks))
    column = column or (result.step_time or 1.0) / 100
    width = round(result.step_time / column)
    lines = []
    for stage in stages:
        line = ["."] * width
        for piece in stage.update:
            first, end = round(piece.start / column), round(piece.end / column)
            line[first:end] = "=" * (end - first)
        one = stage.slots
        for k, work in enumerate(one.work):
            if len(work) == 1:
                first, end = round(float(one.start[k]) / column), round(float(one.end[k]) / column)
                name = f"{work}{one.microbatch[k]}" + (f".{one.chunk[k]}" if one.chunk[k] else "")
                line[first:end] = name.ljust(end - first, "-")[: end - first]
        lines.append(f"{stage.rank:3d} {''.join(line)}")
    return "\n".join(lines) + "\n"
