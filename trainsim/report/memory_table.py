"""Memory in detail: what each stage holds at its peak, when that is, and what is not counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainsim.analysis.memory import CATEGORIES, at_peak
from trainsim.report.sections.memory_per_stage import not_counted, room_blocks, verdict_blocks
from trainsim.report.serial import memory_dict
from trainsim.report.style import GIB
from trainsim.tables.blocks import Section
from trainsim.tables.cells import Unit
from trainsim.tables.table import Column, Table

if TYPE_CHECKING:
    from trainsim.analysis.analysis import Analysis

SHORT = {
    "weights": "weights", "gradients": "grads", "optimizer": "optim.", "gathered": "gath.", "activations": "activ.",
    "logits": "logits", "kv_cache": "KV", "buffers": "buff.", "temporary": "temp.", "slack": "slack",
    "framework": "frame.",
}  # fmt: skip
"""Categories as heads of columns, so that all of them go into 80 columns."""


def memory_sections(result: Analysis) -> list[Section]:
    """Whether it fits, two tables with a row per stage, and what is not counted."""
    use = result.memory
    return [
        Section(result.name, (*verdict_blocks(use), *room_blocks(use))),
        Section("What each stage holds at its peak", (_parts(result),), "fullest rank of the stage, in GiB"),
        Section("When it peaks", (_moments(result), not_counted(use))),
    ]


def _parts(result: Analysis) -> Table:
    stages = result.memory.per_stage
    seen = [category for category in CATEGORIES if any(stage.part(category) for stage in stages)]
    return Table(
        columns=(
            Column("stage", align="right"),
            *(Column(SHORT[category], Unit.BYTES, like=GIB, bare=True, empty="-") for category in seen),
            Column("peak", Unit.BYTES, like=GIB, bare=True),
        ),
        rows=tuple((str(stage.stage), *map(stage.part, seen), stage.peak) for stage in stages),
        extremes="peak",
    )


def _moments(result: Analysis) -> Table:
    use = result.memory
    return Table(
        columns=(
            Column("stage", align="right"),
            Column("peak", Unit.BYTES),
            Column("full", Unit.PERCENT),
            Column("at", Unit.TIME),
            Column("during", wraps=True),
            Column("largest"),
        ),
        rows=tuple(
            (
                str(stage.stage),
                stage.peak,
                stage.peak / use.capacity,
                stage.peak_at_s,
                str(at_peak(result.lanes, stage)),
                stage.largest,
            )
            for stage in use.per_stage
        ),
        extremes="peak",
    )


def memory_data(result: Analysis) -> dict[str, Any]:
    """The same as plain data: ``memory`` of ``result.json``, and the moment of each peak in words."""
    data, stages = memory_dict(result), result.memory.per_stage
    per_stage = [
        {**row, "moment": str(at_peak(result.lanes, stage))}
        for row, stage in zip(data["per_stage"], stages, strict=True)
    ]
    return {**data, "per_stage": per_stage}
