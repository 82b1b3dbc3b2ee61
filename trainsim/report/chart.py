"""The Gantt chart for a terminal, and for a file that a person can read in a diff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainsim.report.drawn_ranks import drawn_ranks, named

if TYPE_CHECKING:
    from trainsim.result.result import Result


def chart(result: Result, ranks: Sequence[int] | None = None, *, column: float | None = None) -> str:
    """A line per rank; each column is *column* seconds (by default, 100 columns in all): the name of the pass that
    fills it (``F3``, ``B0.1`` for chunk 1, ``F3&B1`` for two at once), dashes while it goes on, a dot where the rank
    waits, ``=`` for the rest of the step."""
    stages = drawn_ranks(result, result.ranks(ranks))
    column = column or (result.duration or 1.0) / 100
    width = round(result.duration / column)
    lines = []
    for stage in stages:
        line = ["."] * width
        for piece in stage.update:
            left, right = round(piece.start / column), round(piece.end / column)
            line[left:right] = "=" * (right - left)
        for name, start, end in named(stage.passes):
            left, right = round(start / column), round(end / column)
            line[left:right] = name.ljust(right - left, "-")[: right - left]
        lines.append(f"{stage.rank:3d} {''.join(line)}")
    return "\n".join(lines) + "\n"
