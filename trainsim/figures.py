"""Matplotlib figures that a notebook shows as they are, without pyplot and its global state."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(**options: Any) -> Figure:
    """A figure (*options* as of ``matplotlib.figure.Figure``) whose PNG is what Jupyter displays.

    >>> figure(figsize=(1, 1))._repr_png_()[:4]
    b'\\x89PNG'
    """
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            out = BytesIO()
            self.savefig(out, format="png")
            return out.getvalue()

    return Shown(**options)
