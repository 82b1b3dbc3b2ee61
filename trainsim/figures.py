"""Matplotlib figures that a notebook shows as they are, without pyplot and its global state."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
"""Pixels per inch of all pictures."""
FAMILY = "DejaVu Sans"
"""The font of all pictures, which comes with matplotlib."""
PLACEHOLDERS = "Last Resort"
"""How the names of fonts begin that have a box for every letter."""


class Legible(NamedTuple):
    """A text as it can be drawn here: its letters, the fonts that have them, and what has to be said about it."""

    text: str
    family: tuple[str, ...]
    note: str


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


def legible(text: str) -> Legible:
    """*text* in letters that some font on this machine has; code points stand for those that none has.

    >>> legible("Llama-3 on Jean Zay")
    Legible(text='Llama-3 on Jean Zay', family=('DejaVu Sans',), note='')
    """
    missing = frozenset() if text.isascii() else frozenset(text) - _letters()
    if not missing:
        return Legible(text, (FAMILY,), "")
    if other := _family_with(missing):
        return Legible(text, (FAMILY, other), "")
    spelled = "".join(f"\\u{ord(letter):04x}" if letter in missing else letter for letter in text)
    return Legible(spelled, (FAMILY,), "\\uXXXX: no font on this machine has the letter")


@lru_cache(maxsize=64)
def _family_with(letters: frozenset[str]) -> str | None:
    """A font on this machine that has all of *letters*."""
    from matplotlib.font_manager import fontManager

    fonts = sorted({(entry.name, entry.fname) for entry in fontManager.ttflist})
    some = (name for name, file in fonts if not name.startswith(PLACEHOLDERS) and letters <= _letters_in(file))
    return next(some, None)


@lru_cache(maxsize=1)
def _letters() -> frozenset[str]:
    """The letters of the font of all pictures."""
    from matplotlib.font_manager import FontProperties, findfont

    return _letters_in(findfont(FontProperties(family=FAMILY)))


def _letters_in(file: str) -> frozenset[str]:
    """The letters that a font has; none if it cannot be read."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
