"""A whole run as an image: a few rows of pixels per rank, the colour of what it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainsim.report.scene import MAIN, Stage
from trainsim.report.style import LOOKS

COLUMNS, ROWS = 2200, 8
"""Pixels of the image: in all, and per rank."""
Pixels = npt.NDArray[np.float64]


def strip(stages: Sequence[Stage], end: float, *, start: float = 0.0) -> Pixels:
    """Red, green and blue of [ranks * ROWS, COLUMNS] pixels from *start* to *end* (seconds); idle time is white."""
    image = np.ones((len(stages) * ROWS, COLUMNS, 3))
    at = start + (np.arange(COLUMNS) + 0.5) / COLUMNS * (end - start)
    for k, stage in enumerate(stages):
        for half in (1, -1):
            top = k * ROWS + (0 if half == 1 else ROWS // 2)
            _paint(image[top : top + ROWS // 2], stage, half, at)
    return image


def painted(stages: Sequence[Stage]) -> set[str]:
    """The kinds that a strip shows; idle time is white."""
    return {MAIN[work] for stage in stages for work in stage.slots.work} | {
        piece.kind for stage in stages for piece in stage.update
    }


def _paint(rows: Pixels, stage: Stage, half: int, at: Pixels) -> None:
    """One half of the rows of a rank: what is alone fills both."""
    from matplotlib.colors import to_rgb

    one = stage.slots
    mine = one.half != -half
    starts = np.concatenate([one.start[mine], [piece.start for piece in stage.update]])
    ends = np.concatenate([one.end[mine], [piece.end for piece in stage.update]])
    works = [work for work, drawn in zip(one.work, mine.tolist(), strict=True) if drawn]
    kinds = [MAIN[work] for work in works] + [piece.kind for piece in stage.update]
    if not kinds:
        return
    order = np.argsort(starts, kind="stable")
    shade = np.array([to_rgb(LOOKS[kinds[j]].fill) for j in order.tolist()])
    j = np.searchsorted(starts[order], at, side="right") - 1
    inside = (j >= 0) & (at < ends[order][np.maximum(j, 0)])
    rows[:, inside] = shade[j[inside]]
