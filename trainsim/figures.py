"""Matplotlib figures that a notebook shows as they are, without pyplot and its global state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def quick_import() -> Iterator[None]:
    """Import matplotlib without the documentation that it composes for every artist, a third of its import time.

    For programs that end soon: ``help`` of artists that are first imported meanwhile stays bare.
    """
    from matplotlib.artist import Artist

    compose = getattr(Artist, "_update_set_signature_and_docstring", None)
    if compose is not None:
        setattr(Artist, "_update_set_signature_and_docstring", classmethod(lambda _: None))  # noqa: B010
    try:
        yield
    finally:
        if compose is not None:
            setattr(Artist, "_update_set_signature_and_docstring", classmethod(compose.__func__))  # noqa: B010
