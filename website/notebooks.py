"""Notebooks as pages, from the outputs that are stored in them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from website.links import ROOT

FOLDER = ROOT / "notebooks"
PLACE = '<div id="output-{number}"></div>'
PLACES = re.compile(r'<div id="output-(\d+)"></div>')


class NotebookPage(NamedTuple):
    """A notebook as Markdown with places for its outputs in HTML, those outputs, and its pictures by file name."""

    text: str
    outputs: tuple[str, ...]
    pictures: Mapping[str, bytes]


def notebook_page(path: Path) -> NotebookPage:
    """The page of the notebook at *path*."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    outputs: list[str] = []
    pictures: dict[str, bytes] = {}
    lines = [block for cell in notebook["cells"] for block in _cell(cell, path.stem, outputs, pictures)]
    link = f'<a href="{path.name}" download>The notebook itself</a>, to be run in Jupyter.'
    return NotebookPage("\n\n".join([lines[0], link, *lines[1:]]), tuple(outputs), pictures)


def filled(html: str, outputs: tuple[str, ...]) -> str:
    """A page's HTML with the outputs in their places: after Markdown, which would take them for text."""
    return PLACES.sub(lambda found: f'<div class="output">{outputs[int(found[1])]}</div>', html)


def notebooks() -> list[Path]:
    """All notebooks, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def _cell(cell: Mapping[str, Any], stem: str, outputs: list[str], pictures: dict[str, bytes]) -> Iterator[str]:
    source = _joined(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if "text/html" in data:
            yield PLACE.format(number=len(outputs))
            outputs.append(_joined(data["text/html"]))
        elif "image/png" in data:
            name = f"{stem}-{len(pictures)}.png"
            pictures[name] = base64.b64decode(_joined(data["image/png"]))
            yield f"![What the cell shows]({name})"
        elif text := _joined(data.get("text/plain", output.get("text", ""))):
            yield f"```text\n{text.rstrip()}\n```"


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
