"""Many short texts at once: each letter is one outline that is drawn at all of its places, fast and small in an SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

Text = tuple[float, float, str]
EM = 10.0
CAPITAL = 0.73
"""Height of a capital, in em."""


@cache
def _glyph(character: str) -> tuple[Path | None, float]:
    """The outline of one character, half a capital's height down, and how far it moves the pen, for a font of EM
    points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath

    font = FontProperties(family="DejaVu Sans")
    once, twice = (TextPath((0.0, 0.0), text, size=EM, prop=font) for text in ("||", f"|{character}|"))
    advance = float(twice.vertices[:, 0].max() - once.vertices[:, 0].max())
    if not character.strip():
        return None, advance
    outline = TextPath((0.0, 0.0), character, size=EM, prop=font)
    return Path(outline.vertices - np.array([0.0, EM * CAPITAL / 2]), outline.codes), advance


def width(text: str, points: float) -> float:
    """Points that *text* takes."""
    return sum(_glyph(character)[1] for character in text) * points / EM


def write(
    axes: Axes, texts: Sequence[Text], *, points: float, colour: str, points_per_x: float, halo: str = ""
) -> None:
    """Put each (x, y, text) into *axes* (data coordinates, centred) at a size in *points*, where a unit of x is
    *points_per_x* wide; *halo* is a colour around the letters that keeps them readable on a hatch."""
    places: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for x, y, text in texts:
        pen = x - width(text, points) / 2 / points_per_x
        for character in text:
            places[character].append((pen, y))
            pen += width(character, points) / points_per_x
    outlines = {character: outline for character in places if (outline := _glyph(character)[0]) is not None}
    for edge in (halo, "") if halo else ("",):
        look = {"facecolors": colour, "edgecolors": edge or "none", "linewidths": 2.4 if edge else 0.0}
        if len(texts) < len(outlines):  # fewer artists
            whole = [_whole(text) for _, _, text in texts]
            _put(axes, whole, [(x, y) for x, y, _ in texts], points, look)
        else:
            for character, outline in outlines.items():
                _put(axes, [outline], places[character], points, look)


@lru_cache(maxsize=1024)
def _whole(text: str) -> Path:
    """The outline of a text, centred, for a font of EM points."""
    from matplotlib.path import Path

    parts, pen = [], -width(text, EM) / 2
    for character in text:
        outline, advance = _glyph(character)
        if outline is not None:
            parts.append(Path(outline.vertices + np.array([pen, 0.0]), outline.codes))
        pen += advance
    return Path.make_compound_path(*parts)


def write_upright(axes: Axes, text: Text, *, points: float, colour: str) -> None:
    """Put one (x, y, text) into *axes*, centred, from the bottom to the top."""
    x, y, words = text
    axes.text(
        x, y, words, rotation=90, fontsize=points, color=colour, ha="center", va="center", parse_math=False, zorder=8
    )


def _put(
    axes: Axes, outlines: Sequence[Path], places: Sequence[tuple[float, float]], points: float, look: dict[str, Any]
) -> None:
    """Outlines, or one of them over and over, at *places*."""
    from matplotlib.collections import PathCollection
    from matplotlib.transforms import IdentityTransform

    collection = PathCollection(
        outlines, sizes=[(points / EM) ** 2], offsets=places, offset_transform=axes.transData, zorder=6, snap=False,
        clip_on=False, **look,
    )  # fmt: skip
    collection.set_transform(IdentityTransform())  # outlines are in points; sizes scale their squares
    axes.add_collection(collection, autolim=False)
