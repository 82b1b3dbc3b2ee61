"""What stands around the pictures of a sweep: a title, how to read it, and small print below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainsim.figures import legible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE, MARGIN = 0.165, 0.2
"""Inches: a line of small print, and the margin at its left and below it."""


def write_title(figure: Figure, title: str, how: str) -> None:
    """The *title*, and *how* to read the picture, in the upper left corner."""
    height, x = figure.get_figheight(), MARGIN / figure.get_figwidth()
    words = legible(title)
    figure.text(
        x, 1 - 0.24 / height, words.text, fontsize=12, fontweight="bold", color="#111111", va="center",
        parse_math=False, family=words.family,
    )  # fmt: skip
    figure.text(x, 1 - 0.48 / height, how, fontsize=8.5, color="#555555", va="center")


def write_notes(figure: Figure, lines: Sequence[str]) -> None:
    """Small print in the lower left corner."""
    height, x = figure.get_figheight(), MARGIN / figure.get_figwidth()
    for number, line in enumerate(reversed(lines)):
        y = (MARGIN / 2 + LINE * (number + 0.5)) / height
        figure.text(x, y, line, fontsize=7.5, color="#555555", va="center", parse_math=False)
