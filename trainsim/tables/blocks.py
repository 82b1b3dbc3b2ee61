"""Sections of a report: tables and paragraphs under a heading."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainsim.tables.cells import Bar, Tone
from trainsim.tables.table import Table


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences; a terminal breaks its lines, but never between a number and its unit."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    lines: tuple[str, ...]
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines that stay as they are: code, YAML, paths."""

    text: str


@dataclass(frozen=True, slots=True)
class Markup:
    """A piece of HTML (a chart) that a terminal leaves out."""

    html: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An image inside the page (a data URL); ``caption`` is for who cannot see it. A terminal leaves it out."""

    url: str
    caption: str

    @classmethod
    def of(cls, png: bytes, caption: str) -> Picture:
        """A PNG."""
        return cls(f"data:image/png;base64,{base64.b64encode(png).decode()}", caption)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that stands out: what it is, the number, and a remark."""

    name: str
    value: str
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that matter most: tiles of a page, lines of a terminal."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class LegendKey:
    """An entry of a legend; ``letter`` stands for the colour where there is none."""

    colour: str
    letter: str
    words: str


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours and letters of bars are."""

    keys: tuple[LegendKey, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Stacked:
    """One wide bar of a page; a terminal, which has the table below it, leaves it out."""

    bar: Bar


@dataclass(frozen=True, slots=True)
class Interactive:
    """A part of a page that a script shows: ``view`` names it, ``data`` (what JSON can hold) is what it shows.

    ``still`` says the same where no script runs: on paper, in a notebook, in a browser that has them switched off. A
    terminal leaves it out.
    """

    view: str
    data: Mapping[str, Any]
    still: tuple[Still, ...] = ()


Still = Paragraph | Bullets | Verbatim | Markup | Picture | Figures | Legend | Stacked | Table
"""Blocks that show themselves."""
Block = Still | Interactive


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; ``note`` says of what the numbers are."""

    title: str
    blocks: tuple[Block, ...]
    note: str = ""
