"""Sections of a report: tables and paragraphs under a heading."""

from __future__ import annotations

from dataclasses import dataclass

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
class Source:
    """Lines that stay as they are: code, YAML, paths."""

    text: str


@dataclass(frozen=True, slots=True)
class Markup:
    """A piece of HTML (a chart) that a terminal leaves out."""

    html: str


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours of a bar are: (colour, words)."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Stacked:
    """One wide bar of a page; a terminal, which has the table below it, leaves it out."""

    bar: Bar


Block = Paragraph | Bullets | Source | Markup | Legend | Stacked | Table


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; ``note`` says of what the numbers are."""

    title: str
    blocks: tuple[Block, ...]
    note: str = ""
