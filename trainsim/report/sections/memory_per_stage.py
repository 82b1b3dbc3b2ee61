"""Memory of each stage at its peak, against the capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.memory import CATEGORIES, StageMemory
from trainsim.report.memory_words import room, verdicts
from trainsim.report.sections import PAGE, TERMINAL, section
from trainsim.report.style import MEMORY
from trainsim.tables.blocks import Block, Legend, LegendKey, Paragraph, Section
from trainsim.tables.cells import Bar, Cell, Part, Sign, Unit
from trainsim.tables.table import Column, Table
from trainsim.units import format_bytes

if TYPE_CHECKING:
    from trainsim.analysis.memory import MemoryUse

LETTERS = {
    "weights": "W", "gradients": "G", "optimizer": "O", "gathered": "g", "activations": "A", "logits": "L",
    "kv_cache": "K", "buffers": "b", "temporary": "t", "slack": "s", "framework": "f",
}  # fmt: skip
"""What the bar of memory is written with, so that it reads without colour."""


@section("memory", place=30, shown_by=(TERMINAL, PAGE), needs=Analysis)
def memory_per_stage(result: Analysis) -> Section:
    """Whether it fits, the fullest rank of each stage at its peak, what fills it, and what is not counted."""
    use = result.memory
    table = Table(
        columns=(
            Column("stage", align="right"),
            Column("rank", Unit.WHOLE, priority=2),
            Column("peak", Unit.BYTES),
            Column("full", Unit.PERCENT),
            Column(width=30),
            Column("", priority=1),
        ),
        rows=tuple(_row(use, stage) for stage in use.per_stage),
        extremes="peak",
    )
    blocks = (*verdict_blocks(use), *room_blocks(use), table, legend(use), not_counted(use))
    return Section("Memory", blocks, "fullest rank of each stage")


def verdict_blocks(use: MemoryUse) -> list[Block]:
    """Whether GPUs, hosts and drives have room."""
    return [Paragraph(words, "" if words.startswith("fits") else "bad") for words in verdicts(use)]


def room_blocks(use: MemoryUse) -> list[Block]:
    """Where the capacity comes from."""
    return [Paragraph(words, "quiet") for words in [room(use)] if words]


def not_counted(use: MemoryUse) -> Paragraph:
    """What the prediction leaves out."""
    return Paragraph(f"not counted: {'; '.join(use.not_counted)}", "quiet")


def legend(use: MemoryUse) -> Legend:
    """What fills the fullest stage, with the letters and colours of the bars."""
    full = use.fullest
    some = [category for category in CATEGORIES if any(stage.part(category) > 0 for stage in use.per_stage)]
    keys = [LegendKey(MEMORY[c], LETTERS[c], f"{c} {format_bytes(full.part(c))}") for c in some]
    return Legend(tuple(keys), f"stage {full.stage} at its peak:")


def _row(use: MemoryUse, stage: StageMemory) -> tuple[Cell, ...]:
    scale = max(use.capacity, use.peak)
    parts = tuple(Part(stage.part(c) / scale, MEMORY[c], LETTERS[c]) for c in CATEGORIES if stage.part(c) > 0)
    mark = use.capacity / scale if scale > use.capacity else None
    return str(stage.stage), stage.rank, stage.peak, stage.peak / use.capacity, Bar(parts, mark), _remark(use, stage)


def _remark(use: MemoryUse, stage: StageMemory) -> Sign:
    if stage.needed > use.capacity:
        return Sign("does not fit", "bad")
    return Sign("fits barely", "doubtful") if stage.peak > use.capacity else Sign(f"mostly {stage.largest}")
