"""Many short texts as one artist: matplotlib draws a thousand microbatch numbers in no time as paths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

Text = tuple[float, float, str]
EM = 10.0


@cache
def _glyph(character: str) -> tuple[Path | None, float]:
    """The outline of one character and how far it moves the pen, for a font of EM points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family="DejaVu Sans")
    once, twice = (TextPath((0.0, 0.0), "|" + character * n + "|", size=EM, prop=font) for n in (1, 2))
    advance = float(twice.vertices[:, 0].max() - once.vertices[:, 0].max())
    return (TextPath((0.0, 0.0), character, size=EM, prop=font) if character.strip() else None), advance


@lru_cache(maxsize=4096)
def _outline(text: str) -> tuple[Path, float]:
    """A centred outline of *text* and its width, for a font of EM points."""
    from matplotlib.path import Path

    parts, pen = [], 0.0
    for character in text:
        path, advance = _glyph(character)
        if path is not None:
            parts.append(Path(path.vertices + np.array([pen, 0.0]), path.codes))
        pen += advance
    whole = Path.make_compound_path(*parts)
    return Path(whole.vertices - np.array([pen / 2, EM * 0.365]), whole.codes), pen  # 0.73 em: a capital's height


def width(text: str, points: float) -> float:
    """Points that *text* takes."""
    return _outline(text)[1] * points / EM


def write(axes: Axes, texts: Sequence[Text], *, points: float, colour: str, halo: str = "") -> None:
    """Put each (x, y, text) into *axes* (data coordinates, centred) at a size in *points*; *halo* is a colour around
    the letters that keeps them readable on a hatch."""
    from matplotlib.collections import PathCollection
    from matplotlib.transforms import IdentityTransform

    if not texts:
        return
    for edge in (halo, "") if halo else ("",):
        collection = PathCollection(
            [_outline(text)[0] for _, _, text in texts],
            sizes=np.full(len(texts), (points / EM) ** 2),
            offsets=np.array([(x, y) for x, y, _ in texts]),
            offset_transform=axes.transData,
            facecolors=colour,
            edgecolors=edge or "none",
            linewidths=2.4 if edge else 0.0,
            zorder=6,
        )
        collection.set_transform(IdentityTransform())  # outlines are in points; sizes scale their squares
        axes.add_collection(collection, autolim=False)
