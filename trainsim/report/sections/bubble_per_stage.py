"""The bubble of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.sections import PAGE, TERMINAL, section
from trainsim.report.style import PARTS
from trainsim.tables.blocks import Paragraph, Section
from trainsim.tables.cells import Bar, Cell, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainsim.analysis.bubble import Bubble

APART = (
    "The bubble row above differs: it covers the whole step, waiting at its end included, and leaves out messages in "
    "flight, which are pp."
)
"""How the bubble of the breakdown and that of the pipeline go together."""
PHASES = "per stage: warm-up ends with its first backward, cool-down begins after its last forward"
"""What the phases of a stage are."""


@section("pipeline bubble", place=40, shown_by=(TERMINAL, PAGE), needs=StepAnalysis)
def bubble_per_stage(result: StepAnalysis) -> Section | None:
    """The bubble in the definitions that are in use; of each stage when it is idle, and the main cause."""
    bubble = result.bubble
    if len(bubble.per_stage) == 1:
        return None
    table = Table(
        columns=(
            Column("stage", align="right"),
            Column("idle", Unit.SHARE),
            Column("", width=10, priority=2),
            Column("warm-up", Unit.TIME, like=bubble.window_s),
            Column("steady", Unit.TIME, like=bubble.window_s),
            Column("cool-down", Unit.TIME, like=bubble.window_s),
            Column("main cause", priority=1),
        ),
        rows=tuple(_rows(bubble)),
        extremes="idle",
    )
    return Section("Pipeline bubble", (Paragraph(_sentences(bubble)), Paragraph(APART, "quiet"), table), PHASES)


def _sentences(bubble: Bubble) -> str:
    period = f"; {bubble.period_fraction:.1%} of the period" if bubble.period_fraction is not None else ""
    whole = f"the {format_time(bubble.window_s)} from the start of the step to the last pass"
    span = f"{bubble.span_fraction:.1%} of the longest span from a rank's first pass to its last"
    phases = (
        f"Warm-up (until every stage has begun its first backward) {format_time(bubble.warmup_s)}, steady state "
        f"{format_time(bubble.steady_s)}, cool-down (once a stage has ended its last forward) "
        f"{format_time(bubble.cooldown_s)}."
    )
    idle = f"Idle for {bubble.fraction:.1%} of {whole}"
    return f"{idle}; {span}{period}. Idle over busy time {bubble.idle_over_ideal:.1%}. {phases}"


def _rows(bubble: Bubble) -> Iterator[tuple[Cell, ...]]:
    for stage, share in zip(bubble.stages, bubble.per_stage, strict=True):
        idle = (stage.warmup_s, stage.steady_s, stage.cooldown_s)
        yield str(stage.stage), share, Bar.of(share, PARTS["other"]), *idle, Sign(stage.mostly)
