"""Levels over time for the view ``areas`` of a page: what stages hold in memory, how full links are."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.lanes import Floats
from trainsim.analysis.links import NEARLY_FULL
from trainsim.report.levels import drawn, stairs
from trainsim.report.link_chart import MOST_LINKS
from trainsim.report.link_words import alike, fullness
from trainsim.report.memory_words import peak_words, top_of
from trainsim.report.page.columns import packed, packed_parts, whole_nanoseconds
from trainsim.report.style import MEMORY, PARTS

MOMENTS, BINS = 800, 500
"""Moments of a chart of memory, and windows of one of a link."""
TOP = 1.02
"""The upper end of a chart of a link: a full one does not touch the edge."""


def memory_data(result: Analysis) -> dict[str, Any]:
    """What the fullest rank of each stage holds over the run, bytes by category."""
    use, end = result.memory, result.duration or 1.0
    shown = drawn(use)
    top = top_of(use)
    series = []
    for stage in shown:
        held = stairs(stage, (0.0, end), MOMENTS)
        parts = [_part(name, MEMORY[name], levels) for name, levels in held.levels.items()]
        name, title = str(stage.stage), f"stage {stage.stage}, rank {stage.rank}"
        series.append(_series(name, title, peak_words(result, stage), held.times, end) | {"parts": parts})
    lines = [{"name": "capacity", "value": use.capacity}] if use.capacity <= top else []
    return {
        "title": "Memory over time", "choice": "stage", "unit": "bytes", "top": top, "lines": lines, "series": series,
        "first": max(range(len(shown)), key=lambda k: shown[k].peak),
    }  # fmt: skip


def link_data(result: Analysis) -> dict[str, Any]:
    """How full the busiest link of each kind is over the run, by kind of communication."""
    end = result.duration or 1.0
    edges, series = np.linspace(0.0, end, BINS + 1), []
    for row in result.link_traffic.rows[:MOST_LINKS]:
        means = dict(zip(COMMUNICATION, result.link_traffic.level(row.link).mean(edges), strict=True))
        parts = [_part(kind, PARTS[kind], means[kind]) for kind in COMMUNICATION if kind in row.by_kind]
        words = fullness(row, result.step_time)
        series.append(_series(row.kind, alike(row), words, edges[:-1], end) | {"parts": parts})
    lines = [{"name": f"{NEARLY_FULL:.0%} of what transfers reach", "value": NEARLY_FULL}]
    return {
        "title": "How full the busiest links are over time", "choice": "link", "unit": "share", "top": TOP,
        "lines": lines, "series": series,
    }  # fmt: skip


def _part(name: str, fill: str, levels: Floats) -> dict[str, Any]:
    return {"name": name, "fill": fill, "levels": packed_parts(levels)}


def _series(name: str, title: str, note: str, times: Floats, end: float) -> dict[str, Any]:
    """Times in nanoseconds."""
    return {
        "name": name, "title": title, "note": note,
        "times": packed(whole_nanoseconds(times)), "until": int(whole_nanoseconds(end)),
    }  # fmt: skip
