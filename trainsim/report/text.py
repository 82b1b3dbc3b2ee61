"""The summary for a terminal, read from top to bottom; it needs 80 columns and no colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainsim.analysis.kinds import TITLES
from trainsim.analysis.memory import CATEGORIES
from trainsim.report.style import MEMORY, PARTS, count, seconds, seconds_of, size

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    from trainsim.comparison import Comparison
    from trainsim.result import Result

SHOWN = 16
"""Stages listed one by one; of more, the first, the last and the extremes are."""
FULL, EMPTY = "█", "·"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int) -> str:
    """A bar of *width* characters, filled to *share*.

    >>> bar(0.5, 4), bar(0.03, 4), bar(2.0, 4)
    ('██··', '▏···', '████')
    """
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and not eighths:
        eighths = 1
    whole, rest = divmod(eighths, 8)
    return (FULL * whole + (EIGHTHS[rest] if rest else "")).ljust(width, EMPTY)


def summary(result: Result, files: Sequence[Path] = ()) -> Group:
    """Everything that a person wants to know first, as one rich renderable."""
    from rich.console import Group

    blocks: list[RenderableType] = [headline(result), where(result), bubbles(result), memories(result)]
    if result.waits:
        blocks.append(waiting(result))
    blocks += [warnings(result), written(files)] if files else [warnings(result)]
    return Group(*blocks)


def headline(result: Result) -> RenderableType:
    """Step time, speed, and the closed form beside the simulation."""
    speed, lanes, closed = result.throughput, result.lanes, result.estimate
    table = _table()
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("step time", _strong(seconds(result.step_time)))
    table.add_row(
        "closed form",
        f"{seconds(closed.seconds)}; the simulation is {closed.difference:+.1%}: {closed.explanation}",
    )
    table.add_row(
        "throughput",
        f"{speed.tokens_per_s:,.0f} tokens/s, {speed.samples_per_s:.4g} samples/s, "
        f"{speed.tokens_per_s_per_gpu:,.1f} tokens/s per GPU",
    )
    table.add_row(
        "per GPU",
        f"model {speed.model_flops_per_gpu / 1e12:.1f} TFLOP/s (MFU {speed.mfu:.1%}), with recomputation "
        f"{speed.hardware_flops_per_gpu / 1e12:.1f} TFLOP/s (HFU {speed.hfu:.1%})",
    )
    table.add_row(
        "parameters",
        f"{count(result.parameters['total'])} in all, {count(result.parameters['per_rank'])} on the mean rank",
    )
    table.add_row(
        "simulated",
        f"{lanes.ranks:,} ranks as {result.trace.classes:,} classes, {count(result.trace.operations)} operations, "
        f"in {seconds(result.simulation.wall_s)}",
    )
    return _titled(result.name, table)


def where(result: Result) -> RenderableType:
    """Exposed time of the mean rank, as bars."""
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, min_width=20)
    table.add_column(no_wrap=True)
    step = result.step_time or 1.0
    for part, value in result.breakdown.items():
        if value > 0:
            share = value / step
            table.add_row(
                part,
                seconds_of(value, step),
                f"{share:.1%}",
                _coloured(bar(share, 20), PARTS[part]),
                f"[dim]{TITLES[part]}",
            )
    return _titled("Where the time goes (mean rank; sums to the step)", table)


def bubbles(result: Result) -> RenderableType:
    """The bubble of the pipeline and of each stage."""
    from rich.console import Group

    one = result.bubble
    lines = [
        f"{one.fraction:.1%} of the pipeline's time is idle (idle over ideal {one.idle_over_ideal:.1%}, "
        f"over each rank's own span {one.span_fraction:.1%})",
        f"warm-up {seconds(one.warmup_s)}, steady {seconds(one.steady_s)}, cool-down {seconds(one.cooldown_s)}",
    ]
    if len(one.per_stage) == 1:
        return _titled("Pipeline bubble", "no pipeline: one stage")
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for stage in _some(one.per_stage):
        if stage is None:
            table.add_row("...", "", "")
        else:
            share = one.per_stage[stage]
            table.add_row(f"stage {stage}", f"{share:.1%}", _coloured(bar(share, 30), "#8c8c8c"))
    return _titled("Pipeline bubble", Group(*lines, table))


def memories(result: Result) -> RenderableType:
    """The fullest rank of each stage against the capacity, with what it holds."""
    from rich.console import Group

    use = result.memory
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for k in _some([stage.peak for stage in use.per_stage]):
        if k is None:
            table.add_row("...", "", "", "", "")
            continue
        stage = use.per_stage[k]
        share = stage.peak / use.capacity
        verdict = "" if share <= 1 else "[bold red]does not fit"
        table.add_row(
            f"stage {stage.stage}", size(stage.peak), f"{share:.0%}", _memory_bar(stage_parts(stage), use.capacity, 28),
            verdict or f"[dim]mostly {stage.largest}",
        )  # fmt: skip
    full = use.fullest
    parts = ", ".join(f"{LETTERS[c]} {c} {size(full.part(c))}" for c in CATEGORIES if full.part(c) > 0)
    state = "fits" if use.fits else "DOES NOT FIT"
    lines = [
        f"{state}: peak {size(use.peak)} of {size(use.capacity)} on rank {use.peak_rank} (stage {full.stage}), "
        f"at {seconds(full.peak_at_s)}",
        f"[dim]{parts}",
        f"[dim]not counted: {'; '.join(use.not_counted)}",
    ]
    return _titled("Memory", Group(lines[0], table, *lines[1:]))


def stage_parts(stage: object) -> dict[str, float]:
    """Bytes of each category at the peak of a stage."""
    return {category: float(getattr(stage, category)) for category in CATEGORIES}


LETTERS = {
    "weights": "W", "gradients": "G", "optimizer": "O", "activations": "A", "buffers": "b", "temporary": "t",
    "framework": "f",
}  # fmt: skip
"""What the bar of memory is written with, so that it reads without colour."""


def _memory_bar(parts: dict[str, float], capacity: float, width: int) -> Text:
    """A bar in letters of what fills the memory; ``|`` marks the capacity."""
    from rich.text import Text

    text, filled, total = Text(), 0, 0.0
    for category, nbytes in parts.items():
        total += nbytes
        end = min(round(total / capacity * width), width + 4)
        text.append(LETTERS[category] * (end - filled), style=MEMORY[category])
        filled = max(filled, end)
    if filled < width:
        text.append(EMPTY * (width - filled), style="dim")
    return text


def waiting(result: Result) -> RenderableType:
    """Which stages wait longest, and for whom."""
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    longest = sorted(result.waits, key=lambda wait: -wait.seconds)[:6]
    for wait in sorted(longest, key=lambda wait: (wait.stage, -wait.seconds)):
        if wait.seconds > 1e-4 * result.step_time:
            table.add_row(
                f"stage {wait.stage} waits", seconds(wait.seconds), waits_for(wait.what, wait.source, wait.stage)
            )
    return _titled("Who waits for whom (longest)", table)


def waits_for(what: str, source: int, stage: int) -> str:
    """
    >>> waits_for("pp-forward", 2, 3), waits_for("pp-backward", 4, 3), waits_for("own messages", 3, 3)
    ('for activations from stage 2', 'for gradients from stage 4', 'until its own messages have arrived')
    >>> waits_for("dp", 3, 3), waits_for("gradient norm", 0, 3), waits_for("reduce 3.0", 3, 3)
    ('for overlapped dp', 'for stage 0 in gradient norm', 'for late replicas in reduce 3.0')
    """
    if what == "own messages":
        return "until its own messages have arrived"
    if what in MESSAGES:
        return f"for {MESSAGES[what]} from stage {source}"
    if what in PARTS:
        return f"for overlapped {what}"
    return f"for late replicas in {what}" if source == stage else f"for stage {source} in {what}"


MESSAGES = {"pp-forward": "activations", "pp-backward": "gradients"}
"""What the messages of a pipeline carry."""


def warnings(result: Result) -> RenderableType:
    """What to know before believing the numbers."""
    from rich.console import Group

    if not result.warnings:
        return ""
    return _titled("Warnings", Group(*(f"[yellow]![/] {warning}" for warning in result.warnings)))


def written(files: Iterable[Path]) -> RenderableType:
    """The files that hold more."""
    from rich.console import Group
    from rich.text import Text

    return _titled("Files", Group(*(Text(str(path), overflow="fold") for path in files)))


def comparison(one: Comparison) -> RenderableType:
    """Two runs: how much they differ, and where the difference comes from."""
    from rich.console import Group

    faster = "shorter" if one.seconds < 0 else "longer"
    lines = [
        f"{seconds(one.step_before)} -> {seconds(one.step_after)}: the step is [bold]{seconds(abs(one.seconds))} "
        f"({abs(one.ratio):.1%}) {faster}[/]",
        f"MFU {one.mfu_before:.1%} -> {one.mfu_after:.1%}, bubble {one.bubble_before:.1%} -> {one.bubble_after:.1%}, "
        f"memory {size(one.memory_before)} -> {size(one.memory_after)}",
        *(f"[dim]{path}: {before} -> {after}" for path, (before, after) in one.changes.items()),
    ]
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    most = max((abs(change) for _, change in one.causes), default=1.0)
    for part, change in one.causes:
        sign = "+" if change > 0 else "-"
        colour = "red" if change > 0 else "green"
        table.add_row(
            part,
            f"{sign}{seconds(abs(change))}",
            _coloured(bar(abs(change) / most, 20), colour),
            f"[dim]{TITLES[part]}",
        )
    return _titled(f"{one.after} against {one.before}", Group(*lines, table))


def _some(values: Sequence[float]) -> list[int | None]:
    """Indices worth a line: all if few; else both ends and the extremes, with None where some are left out."""
    n = len(values)
    if n <= SHOWN:
        return list(range(n))
    keep = {0, 1, n - 2, n - 1, max(range(n), key=values.__getitem__), min(range(n), key=values.__getitem__)}
    out: list[int | None] = []
    for k in sorted(keep):
        if out and out[-1] is not None and k - out[-1] > 1:
            out.append(None)
        out.append(k)
    return out


def _table() -> Table:
    from rich.table import Table

    return Table.grid(padding=(0, 2))


def _titled(title: str, body: RenderableType) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(title, style="bold underline"), Padding(body, (0, 0, 1, 2)))


def _strong(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def _coloured(text: str, colour: str) -> Text:
    from rich.text import Text

    return Text(text, style=colour)
