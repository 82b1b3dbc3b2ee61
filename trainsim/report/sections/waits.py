"""Who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.kinds import PARTS as KINDS_OF
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.report.sections import PAGE, TERMINAL, section
from trainsim.report.style import PARTS
from trainsim.tables.blocks import Section
from trainsim.tables.cells import Bar, Cell, Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from trainsim.analysis.breakdown import StageWait

LONGEST, WORTH = 8, 0.005
"""Waits that are listed, and the part of the step from which on they are."""
MESSAGES = {"pp-forward": "activations", "pp-backward": "gradients"}
"""What the messages of a pipeline carry, whichever way they go."""


@section("waits", place=50, shown_by=(TERMINAL, PAGE), needs=StepAnalysis)
def waits(result: StepAnalysis) -> Section | None:
    """The longest waits, and who is late."""
    step = result.step_time or 1.0
    some = sorted((wait for wait in result.waits if wait.seconds > WORTH * step), key=lambda wait: -wait.seconds)
    if not some:
        return None
    table = Table(
        columns=(
            Column("stage", align="right"),
            Column("waits", Unit.TIME, like=step),
            Column("", Unit.SHARE),
            Column(width=12, priority=1),
            Column("for", wraps=True),
        ),
        rows=tuple(_row(wait, step) for wait in some[:LONGEST]),
    )
    return Section("Who waits for whom", (table,), "averaged over the ranks of a stage, whole step, longest first")


def _row(wait: StageWait, step: float) -> tuple[Cell, ...]:
    share = wait.seconds / step
    return (
        str(wait.stage),
        wait.seconds,
        share,
        Bar.of(share, PARTS["other"]),
        waits_for(wait.what, wait.source, wait.stage),
    )


def waits_for(what: str, source: int, stage: int) -> str:
    """
    >>> waits_for("pp-forward", 2, 3), waits_for("pp-backward-reverse", 4, 3), waits_for("own messages", 3, 3)
    ('activations from stage 2', 'gradients from stage 4', 'its own messages to arrive')
    >>> waits_for("dp", 3, 3), waits_for("gradient norm", 0, 3), waits_for("reduce 3.0", 3, 3)
    ('overlapped dp to finish', 'stage 0 in gradient norm', 'late replicas in reduce 3.0')
    >>> waits_for("control-next", 2, 3)
    'stage 2 to join a blocking message'
    >>> waits_for("offload-read", 3, 3)
    'host memory or drives (offload-read)'
    >>> waits_for("vocabulary", 3, 3)
    'the logits of all stages'
    """
    if what == "own messages":
        return "its own messages to arrive"
    carried = next((MESSAGES[way] for way in MESSAGES if what.startswith(way)), None)
    if carried:
        return f"{carried} from stage {source}"
    if what.startswith("control"):
        return f"stage {source} to join a blocking message"
    if what == "vocabulary":
        return "the logits of all stages"
    if what == "activations":
        return "activations on their way to or from the host"
    if what in KINDS_OF:
        return f"overlapped {what} to finish"
    if what.startswith("offload"):
        return f"host memory or drives ({what})"
    return f"late replicas in {what}" if source == stage else f"stage {source} in {what}"
