"""
What a file's comments say about its values: the remark behind a value, above it, or at the section that it stands in.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainsim.documents.document import text_of
from trainsim.documents.origin import Key, Origin
from trainsim.errors import TrainsimError

BEHIND = re.compile(r"\s#\s(.*)$")


def place_of(origin: Origin, key: Key) -> str:
    """``file:line`` of the value at *key*, without its folders; empty where it stands in no file."""
    return Path(origin.place(key).removesuffix(": ")).name


def remark_on(origin: Origin, key: Key) -> str:
    """The comment on the value at *key*: the nearest of those behind or above it and its sections."""
    while origin.below and origin.place(key) == origin.below.place(key):
        origin = origin.below
    try:
        lines = text_of(origin.folder / Path(origin.file).name, origin.file).splitlines()
    except TrainsimError:
        return ""
    depths = (key[:depth] for depth in range(len(key), 0, -1))
    found = (_remark(lines, origin.lines[part]) for part in depths if part in origin.lines)
    return next((remark for remark in found if remark), "")


def _remark(lines: list[str], number: int) -> str:
    """The comment behind line *number*, else the lines of comments right above it.

    >>> _remark(["# fitted on", "# two tables", "a: 1", "b: 2  # assumption"], 4)
    'assumption'
    >>> _remark(["# fitted on", "# two tables", "a: 1", "b: 2  # assumption"], 3)
    'fitted on two tables'
    """
    if behind := BEHIND.search(lines[number - 1]):
        return behind[1].strip()
    above: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.lstrip().startswith("#"):
            break
        above.insert(0, line.lstrip("# ").strip())
    return " ".join(above)
