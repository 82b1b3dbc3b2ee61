"""The summary for a terminal, read from top to bottom; it needs 80 columns and no colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from trainsim.analysis.expectation import AGREES
from trainsim.analysis.kinds import TITLES, WAITING
from trainsim.analysis.memory import CATEGORIES, StageMemory
from trainsim.report.memory_words import verdicts
from trainsim.report.style import CONVENTION, MEMORY, PARTS
from trainsim.tables.prose import Prose
from trainsim.units import format_bytes, format_count, format_number_of, format_time

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    from trainsim.result.result import Result

ROW = (
    "The row bubble above is of the whole step: without messages under way (pp) and what a rank does after its last "
    "pass, but with the waiting at the end of the step."
)
"""How the bubble of the breakdown and that of the pipeline go together."""
WORTH = 5e-4
"""Part of the step from which on a wait is worth a line."""
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
    rows = {"step time": f"[bold]{format_time(result.step_time)}[/]"}
    if result.period is not None:
        rows["period"] = (
            f"{format_time(result.period)} from step to step, {format_number_of(result.steps, 'step')} back to back"
        )
    said = "agrees" if abs(closed.difference) < AGREES else f"is {closed.difference:+.1%}: {closed.explanation}"
    rows |= {
        "closed form": f"{format_time(closed.seconds)}; the simulation {said}",
        "throughput": f"{speed.tokens_per_s:,.0f} tokens/s, {speed.samples_per_s:.4g} samples/s, "
        f"{speed.tokens_per_s_per_gpu:,.1f} tokens/s per GPU",
        "per GPU": f"model {speed.model_flops_per_gpu / 1e12:.1f} TFLOP/s (MFU {speed.mfu:.1%}), with recomputation "
        f"{speed.hardware_flops_per_gpu / 1e12:.1f} TFLOP/s (HFU {speed.hfu:.1%})",
        "": f"[dim]{CONVENTION}[/]",
        "parameters": _parameters(result.parameters),
        "simulated": f"{format_number_of(lanes.ranks, 'rank')} as {format_number_of(result.trace.classes, 'class')}, "
        f"{format_count(result.trace.operations)} operations, in {format_time(result.simulation.wall_s)}",
    }
    grid = table("lL")
    grid.columns[0].style = "bold"
    for name, text in rows.items():
        grid.add_row(name, Prose(text))
    return titled(result.name, grid)


def _parameters(some: Mapping[str, float]) -> str:
    trained = f", {format_count(some['trainable'])} of them trained" if some["trainable"] < some["total"] else ""
    return f"{format_count(some['total'])} in all{trained}, {format_count(some['per_rank'])} on the mean rank"


def where(result: Result) -> RenderableType:
    """Exposed time of the mean rank, as bars."""
    grid = table("lrrlL")
    step = result.step_time or 1.0
    for part, value in result.breakdown.items():
        if value > 0:
            share = value / step
            grid.add_row(
                part,
                format_time(value, like=step),
                f"{share:.1%}",
                coloured(bar(share, 18), PARTS[part]),
                Prose(TITLES[part], "dim"),
            )
        if part in WAITING and result.waiting[part] > WORTH * step:
            late = result.waiting[part]
            grid.add_row(
                "", format_time(late, like=step), f"{late / step:.1%}", "", Prose(f"of it {WAITING[part]}", "dim")
            )
    return titled("Where the time goes (mean rank; sums to the step)", grid)


def bubbles(result: Result) -> RenderableType:
    """The bubble of the pipeline; of each stage when it is idle, and mostly for want of what."""
    from rich.console import Group

    one = result.bubble
    period = f"; {one.period_fraction:.1%} of the steady state" if one.period_fraction is not None else ""
    lines = [
        Prose(
            f"{one.fraction:.1%} of the pipeline's window is idle: of {format_time(one.window_s)}, from the start of the "  # noqa: E501
            f"step to its last pass. As idle over ideal time {one.idle_over_ideal:.1%}; over the longest time from a "
            f"rank's first pass to its last {one.span_fraction:.1%}{period}."
        ),
        Prose(ROW, "dim"),
        Prose(
            f"warm-up {format_time(one.warmup_s)}, steady {format_time(one.steady_s)}, cool-down {format_time(one.cooldown_s)}"  # noqa: E501
        ),
    ]
    if len(one.per_stage) == 1:
        return titled("Pipeline bubble", "no pipeline: one stage")
    grid = table("lrlrrrL")
    grid.add_row("", "idle", "", "warm-up", "steady", "cool-down", "waits mostly for", style="dim")
    for k in some(one.per_stage):
        if k is None:
            grid.add_row("...")
            continue
        stage, share = one.stages[k], one.per_stage[k]
        idle = (format_time(part, like=one.window_s) for part in (stage.warmup_s, stage.steady_s, stage.cooldown_s))
        grid.add_row(f"stage {k}", f"{share:.1%}", coloured(bar(share, 10), "#8c8c8c"), *idle, Prose(stage.mostly))
    return titled("Pipeline bubble", Group(*lines, grid))


def memories(result: Result) -> RenderableType:
    """The fullest rank of each stage against the capacity, with what it holds."""
    from rich.console import Group

    use = result.memory
    grid = table("lrrlL")
    for k in some([stage.peak for stage in use.per_stage]):
        if k is None:
            grid.add_row("...", "", "", "", "")
            continue
        stage = use.per_stage[k]
        share = stage.peak / use.capacity
        verdict = (
            "[bold red]does not fit" if stage.needed > use.capacity else "[yellow]fits barely" if share > 1 else ""
        )
        grid.add_row(
            f"stage {stage.stage}", format_bytes(stage.peak), f"{share:.0%}", _memory_bar(stage_parts(stage), use.capacity, 28),  # noqa: E501
            verdict or Prose(f"mostly {stage.largest}", "dim"),
        )  # fmt: skip
    full = use.fullest
    parts = ", ".join(f"{LETTERS[c]} {c} {format_bytes(full.part(c))}" for c in CATEGORIES if full.part(c) > 0)
    first, *beside = verdicts(use)
    return titled(
        "Memory",
        Group(
            Prose(f"{first} (stage {full.stage}), at {format_time(full.peak_at_s)}"),
            grid,
            Prose(parts, "dim"),
            *map(Prose, beside),
            Prose(f"not counted: {'; '.join(use.not_counted)}", "dim"),
        ),
    )


def stage_parts(stage: StageMemory) -> dict[str, float]:
    """Bytes of each category at the peak of a stage."""
    return {category: stage.part(category) for category in CATEGORIES}


LETTERS = {
    "weights": "W", "gradients": "G", "optimizer": "O", "gathered": "g", "activations": "A", "logits": "L",
    "buffers": "b", "temporary": "t", "slack": "s", "framework": "f",
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
    grid = table("lrL")
    longest = sorted(result.waits, key=lambda wait: -wait.seconds)[:6]
    for wait in sorted(longest, key=lambda wait: (wait.stage, -wait.seconds)):
        if wait.seconds > WORTH * result.step_time:
            grid.add_row(
                f"stage {wait.stage} waits",
                format_time(wait.seconds, like=result.step_time),
                Prose(waits_for(wait.what, wait.source, wait.stage)),
            )
    return titled("Who waits for whom (longest)", grid)


def waits_for(what: str, source: int, stage: int) -> str:
    """
    >>> waits_for("pp-forward", 2, 3), waits_for("pp-backward-reverse", 4, 3), waits_for("own messages", 3, 3)
    ('for activations from stage 2', 'for gradients from stage 4', 'until its own messages have arrived')
    >>> waits_for("dp", 3, 3), waits_for("gradient norm", 0, 3), waits_for("reduce 3.0", 3, 3)
    ('for overlapped dp', 'for stage 0 in gradient norm', 'for late replicas in reduce 3.0')
    >>> waits_for("control-next", 2, 3)
    'until stage 2 takes part in a blocking message'
    >>> waits_for("offload-read", 3, 3)
    'for the host and its drives (offload-read)'
    >>> waits_for("vocabulary", 3, 3)
    'for the logits of all stages'
    """
    if what == "own messages":
        return "until its own messages have arrived"
    carried = next((MESSAGES[way] for way in MESSAGES if what.startswith(way)), None)
    if carried:
        return f"for {carried} from stage {source}"
    if what.startswith("control"):
        return f"until stage {source} takes part in a blocking message"
    if what == "vocabulary":
        return "for the logits of all stages"
    if what in PARTS:
        return f"for overlapped {what}"
    if what.startswith("offload"):
        return f"for the host and its drives ({what})"
    return f"for late replicas in {what}" if source == stage else f"for stage {source} in {what}"


MESSAGES = {"pp-forward": "activations", "pp-backward": "gradients"}
"""What the messages of a pipeline carry, whichever way they go."""


def warnings(result: Result) -> RenderableType:
    """What to know before believing the numbers."""
    from rich.console import Group

    if not result.warnings:
        return ""
    return titled("Warnings", Group(*(Prose(f"[yellow]![/] {plain(one)}") for one in result.warnings)))


def written(files: Iterable[Path]) -> RenderableType:
    """The files that hold more."""
    from rich.console import Group
    from rich.text import Text

    return titled("Files", Group(*(Text(str(path), overflow="fold") for path in files)))


def some(values: Sequence[float]) -> list[int | None]:
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


def table(columns: str, *, space: int = 2) -> Table:
    """A grid without lines; *columns* has a letter for each: ``l`` left, ``r`` right, ``L`` left and may be wrapped."""
    from rich.table import Table

    grid = Table.grid(padding=(0, space))
    for side in columns:
        grid.add_column(justify="right" if side == "r" else "left", no_wrap=side != "L")
    return grid


def titled(title: str, body: RenderableType) -> RenderableType:
    """*body* under a heading."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(title, style="bold underline"), Padding(body, (0, 0, 1, 2)))


def plain(text: str) -> str:
    """*text* as it is, whatever brackets are in it."""
    from rich.markup import escape

    return escape(text)


def coloured(text: str, colour: str) -> Text:
    """Text in one colour."""
    from rich.text import Text

    return Text(text, style=colour)
