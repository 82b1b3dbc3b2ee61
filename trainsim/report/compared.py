"""Runs side by side, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.report.text import bar, coloured, plain, table, titled
from trainsim.tables.prose import Prose
from trainsim.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trainsim.result.comparison import Comparison
    from trainsim.study.side_by_side import SideBySide


def side_by_side(some: SideBySide) -> RenderableType:
    """A row per run, then where each differs from the first."""
    from rich.console import Group

    first, piped = some.columns[0], any(column.p2p for column in some.columns)
    grid = table("Lrrrrrrr", space=1)
    grid.add_row("", "step", "", "bubble", "MFU", "keeps", "sends", "memory", style="dim")
    for column in some.columns:
        ratio = column.step_time / first.step_time
        change = "" if column is first else f"{ratio - 1.0:+.1%}" if ratio < 2.0 else f"x {ratio:.3g}"
        grid.add_row(
            Prose(plain(column.name)),
            format_time(column.step_time),
            change,
            f"{column.bubble_fraction:.1%}",
            f"{column.mfu:.1%}",
            format_bytes(max(column.activations)),
            format_bytes(column.p2p if piped else column.dp),
            format_bytes(column.memory_peak) + ("" if column.fits else " [red]!"),
        )
    note = f"keeps: activations on the fullest rank; sends: to other {'stages' if piped else 'replicas'}, per rank"
    if not all(column.fits for column in some.columns):
        note += "; !: does not fit"
    return Group(
        titled("Side by side", Group(grid, Prose(note, "dim"))), *(comparison(one) for one in some.differences)
    )


def comparison(one: Comparison) -> RenderableType:
    """Two runs: how much they differ, and where the difference comes from."""
    from rich.console import Group

    faster = "shorter" if one.seconds < 0 else "longer"
    lines = [
        Prose(
            f"{format_time(one.step_before)} -> {format_time(one.step_after)}: the step is [bold]{format_time(abs(one.seconds))} "  # noqa: E501
            f"({abs(one.ratio):.1%}) {faster}[/]"
        ),
        Prose(
            f"MFU {one.mfu_before:.1%} -> {one.mfu_after:.1%}, bubble {one.bubble_before:.1%} -> "
            f"{one.bubble_after:.1%}, memory {format_bytes(one.memory_before)} -> {format_bytes(one.memory_after)}"
        ),
        *(Prose(plain(f"{path}: {before} -> {after}"), "dim") for path, (before, after) in one.changes.items()),
    ]
    grid = table("lrlL")
    most = max((abs(change) for _, change in one.causes), default=1.0)
    for part, change in one.causes:
        colour = "red" if change > 0 else "green"
        grid.add_row(
            part,
            format_time(change, like=most, signed=True),
            coloured(bar(abs(change) / most, 20), colour),
            Prose(one.words(part), "dim"),
        )
    before, after = one.titles
    return titled(f"{after} against {before}", Group(*lines, grid))
