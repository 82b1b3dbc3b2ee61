"""Many short texts as one artist: matplotlib draws a thousand microbatch numbers in no time as paths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

Text = tuple[float, float, str]


@lru_cache(maxsize=4096)
def _path(text: str, points: float) -> tuple[Path, float]:
    """A centred outline of *text* and its width, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    path = TextPath((0.0, 0.0), text, size=points, prop=FontProperties(family="DejaVu Sans"))
    box = path.get_extents()
    middle = -np.array([box.x0 + box.x1, points * 0.73]) / 2
    return type(path.cleaned())(path.vertices + middle, path.codes), float(box.width)


def width(text: str, points: float) -> float:
    """Points that *text* takes."""
    return _path(text, points)[1]


def write(axes: Axes, texts: Sequence[Text], *, points: float, colour: str, **style: Any) -> None:
    """Put each (x, y, text) into *axes* (data coordinates, centred) at a size in *points*."""
    from matplotlib.collections import PathCollection
    from matplotlib.transforms import IdentityTransform

    if not texts:
        return
    collection = PathCollection(
        [_path(text, points)[0] for _, _, text in texts],
        sizes=(1.0,) * len(texts),
        offsets=np.array([(x, y) for x, y, _ in texts]),
        offset_transform=axes.transData,
        facecolors=colour,
        edgecolors="none",
        linewidths=0.0,
        zorder=6,
        **style,
    )
    collection.set_transform(IdentityTransform())  # with sizes of one square point, outlines keep their size
    axes.add_collection(collection, autolim=False)
