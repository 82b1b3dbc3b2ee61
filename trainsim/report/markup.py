"""Pieces of HTML that pages and cards are made of."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def section(title: str, body: str, note: str = "") -> str:
    """*body* under a heading, with a note beside it."""
    small = f" <small>{note}</small>" if note else ""
    return f"<section><h2>{escape(title)}{small}</h2>{body}</section>"


def image(data: bytes) -> str:
    """A PNG inside the page."""
    return f"<img alt='Gantt chart' src='data:image/png;base64,{base64.b64encode(data).decode()}'>"


def bar(parts: Iterable[tuple[float, str]], *, tall: bool = False, mark: float | None = None) -> str:
    """A stacked bar of (share, colour); *mark* is a line across it."""
    inner = "".join(f"<u style='width:{share * 100:.3f}%;background:{colour}'></u>" for share, colour in parts)
    line = f"<s style='left:{mark * 100:.2f}%'></s>" if mark is not None else ""
    return f"<div class='bar{' tall' if tall else ''}'>{inner}{line}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head) if any(head) else ""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def items(lines: Iterable[str]) -> str:
    """A list of plain lines."""
    inner = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul class='warnings'>{inner}</ul>" if inner else ""


@cache
def css() -> str:
    """The style of pages and cards."""
    return (files("trainsim.tables") / "templates" / "page.css").read_text()


def png_of(figure: Figure) -> bytes:
    """A figure as PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()
