"""Memory in the page: small charts of what each stage holds over time."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from trainsim.analysis.memory import StageMemory
from trainsim.report.compute_lane import MAIN
from trainsim.report.drawn_ranks import DrawnRank, drawn_ranks
from trainsim.report.levels import STACK, Edge, drawn, edges, stairs
from trainsim.report.memory_words import peak_words, top_of
from trainsim.report.style import KEPT, LOOKS, MEMORY

if TYPE_CHECKING:
    from trainsim.analysis.analysis import Analysis

COLUMNS = 500
"""Moments of a chart."""
WIDE, HIGH = 1000, 100
"""Units of a chart: in time, and up to its top."""
PHASES = ("forward", "backward", "input", "weight", "optimizer")
"""What the strip under a chart shows."""


def _legend(categories: dict[str, None]) -> str:
    inner = " ".join(f"<span><i style='background:{MEMORY[c]}'></i>{c}</span>" for c in categories)
    return f"<p class='legend'>{inner}</p>"


def memory_charts(result: Analysis) -> str:
    """A chart per stage, of at most a few hundred moments each: categories upon each other, the capacity as a line, the
    peak as a mark, forward, backward and optimizer below."""
    use = result.memory
    some = drawn(use)
    top = top_of(use)
    who = drawn_ranks(result, [stage.rank for stage in some])
    charts = [_chart(result, stage, ranks_of_stage, top) for stage, ranks_of_stage in zip(some, who, strict=True)]
    if len(some) < len(use.per_stage):
        charts.insert(len(some) // 2, "<p class='note'>...</p>")
    seen = dict.fromkeys(c for c in STACK if any(c in stage.levels for stage in some))
    return "".join(charts) + _legend(seen)


def _chart(result: Analysis, stage: StageMemory, who: DrawnRank, top: float) -> str:
    end, capacity, usable = result.duration or 1.0, result.memory.capacity, result.memory.usable
    held = stairs(stage, (0.0, end), COLUMNS)
    areas = "".join(_area(edge, end, top) for edge in edges(held))
    full = f"<path class='full' d='M0 {_height(capacity, top)}H{WIDE}'/>" if capacity <= top else ""
    if full and usable > capacity:
        full = f"<path fill='{KEPT}' d='M0 {_height(usable, top)}H{WIDE}V{_height(capacity, top)}H0Z'/>{full}"
    over = " class='alarm'" if stage.needed > capacity else ""
    box = f"viewBox='0 0 {WIDE} {HIGH + 12}' preserveAspectRatio='none'"
    left, up = 100 * stage.peak_at_s / end, _height(stage.peak, top) * 100 / (HIGH + 12)
    mark = f"<b style='left:{left:.2f}%;top:{up:.1f}%'></b>"
    words = escape(peak_words(result, stage))
    return (
        f"<div class='level'><p><b>stage {stage.stage}, rank {stage.rank}</b> <span{over}>{words}</span></p>"
        f"<div><svg {box}>{areas}{full}{_strip(who, end)}</svg>{mark}</div></div>"
    )


def _height(level: float, top: float) -> float:
    """Down from the upper end, in units of a chart."""
    return round((1 - level / top) * HIGH, 1)


def _area(edge: Edge, end: float, top: float) -> str:
    """All below an edge, as steps; those that cannot be told apart are one."""
    path, before = [], -1.0
    x = np.rint(edge.times / end * WIDE).astype(int).tolist()
    for at, level in zip(x, edge.level.tolist(), strict=True):
        height = _height(level, top)
        if height != before:
            path.append(f"H{at}V{height:g}")
            before = height
    return f"<path fill='{MEMORY[edge.category]}' d='M0 {HIGH}{''.join(path)}H{WIDE}V{HIGH}'/>"


def _strip(who: DrawnRank, end: float) -> str:
    """The passes of a rank as bars under its chart."""
    boxes: dict[str, list[str]] = {}
    for kind, first, after in _runs(who, end):
        boxes.setdefault(kind, []).append(f"M{first} {HIGH + 3}h{after - first}v9h-{after - first}")
    return "".join(f"<path fill='{LOOKS[kind].fill}' d='{''.join(some)}'/>" for kind, some in boxes.items())


def _runs(who: DrawnRank, end: float) -> Iterator[tuple[str, int, int]]:
    """(Kind, left, right) of what a rank does, in units of a chart."""
    works = [MAIN[work] for work in who.passes.work] + [piece.kind for piece in who.update]
    starts = np.concatenate([who.passes.start, [piece.start for piece in who.update]])
    ends = np.concatenate([who.passes.end, [piece.end for piece in who.update]])
    order = np.argsort(starts, kind="stable")
    at = (np.arange(WIDE // 2) + 0.5) / (WIDE // 2) * end
    held = np.searchsorted(starts[order], at, side="right") - 1
    doing = [
        works[order[k]] if k >= 0 and time < ends[order[k]] else "" for k, time in zip(held.tolist(), at, strict=True)
    ]
    x = 0
    for kind, some in groupby(doing):
        length = 2 * len(list(some))
        if kind in PHASES:
            yield kind, x, x + length
        x += length
