"""The script and the style of a page: the files beside this module, put together."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

FIRST, LAST = "base.js", "start.js"
"""What all views use, and what shows them once they are known; the other scripts are views and parts of views."""


@cache
def script() -> str:
    """All scripts as one that names nothing outside itself; a new file is a part of it."""
    folder = files("trainsim.report.page")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".js"))
    order = [FIRST, *(name for name in names if name not in (FIRST, LAST)), LAST]
    texts = "\n".join((folder / name).read_text(encoding="utf-8") for name in order)
    return f'(() => {{\n"use strict";\n{texts}}})();\n'


@cache
def style() -> str:
    """What a page looks like beyond a card: dark and light, on paper, and its interactive parts."""
    return (files("trainsim.report.page") / "page.css").read_text(encoding="utf-8")
