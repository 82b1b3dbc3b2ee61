"""Will it fit, as a picture: plans against cards, coloured by how full the card is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainsim.analysis.memory import NEARLY_FULL
from trainsim.figures import figure as new_figure
from trainsim.study.memory_table import MemoryTable, PlanOnCard
from trainsim.study.memory_table_sections import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GIB = 2.0**30
FITS = ((0.8, "#9fd19b"), (NEARLY_FULL, "#cfe5a0"), (float("inf"), "#f5e39a"))
TOO_LARGE = ((1.5, "#f0a58a"), (float("inf"), "#dd7b73"))
"""Colours up to a used part of what is fullest: room, full, tight; too little, far too little."""
UNKNOWN = "#e2e2e2"


def memory_picture(table: MemoryTable) -> Figure:
    """A panel for each number of GPUs; green fits, red does not, grey cannot be run. A cell has GiB."""
    panels = [(gpus, table.at(gpus)) for gpus in table.counts]
    rows = sum(len(at) for _, at in panels)
    figure = new_figure(figsize=(3.6 + 0.9 * len(table.cards), 1.1 * len(panels) + 0.32 * rows), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[len(at) for _, at in panels])[:, 0]
    for axis, (gpus, at) in zip(axes, panels, strict=True):
        _panel(axis, table.cards, at)
        axis.set_title(f"{gpus} GPU{'s, each' if gpus > 1 else ''}: GiB at the peak", loc="left", fontsize=10)
    figure.suptitle(f"{table.model.name}: what fits where", fontsize=12)
    return figure


def _panel(axis: Any, cards: tuple[str, ...], at: dict[str, dict[str, PlanOnCard]]) -> None:
    for y, fits in enumerate(at.values()):
        for x, card in enumerate(cards):
            ran = fits[card].ran if card in fits else None
            axis.add_patch(_box(x, y, _shade(fits.get(card))))
            axis.text(x, y, f"{ran.peak_memory / GIB:.1f}" if ran else "-", ha="center", va="center", fontsize=8)
    axis.set_xticks(range(len(cards)), [short(card, cards) for card in cards], fontsize=8)
    axis.set_yticks(range(len(at)), list(at), fontsize=8)
    axis.set_xlim(-0.5, len(cards) - 0.5)
    axis.set_ylim(len(at) - 0.5, -0.5)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _shade(fit: PlanOnCard | None) -> str:
    if fit is None or fit.ran is None:
        return UNKNOWN
    full = fit.ran.full
    return next(shade for most, shade in (FITS if fit.fits else TOO_LARGE) if full <= most)


def _box(x: int, y: int, shade: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=shade, edgecolor="none")
