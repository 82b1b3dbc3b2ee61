"""A key of a file and what is said of it; tables of keys in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import yaml

REQUIRED = "needed"
LONGEST = 60
"""Letters of an example that a table has room for."""


class Key(NamedTuple):
    """A key by its path, what it may hold, in what unit, what it is if left out, what it means, and an example."""

    path: str
    kind: str
    unit: str
    default: str
    meaning: str
    example: str = ""


def table(keys: Iterable[Key], *, examples: bool = False) -> str:
    """A Markdown table; every key can be linked to.

    >>> print(table([Key("a.b", "number", "s", "1", "how long")]))
    | key | type | unit | default | meaning |
    |---|---|---|---|---|
    | <a id="a.b"></a>`a.b` | number | s | 1 | how long |
    """
    heads = ["key", "type", "unit", "default", "meaning", *(["example"] if examples else [])]
    lines = [_row(heads), "|---" * len(heads) + "|"]
    for key in keys:
        cells = [f'<a id="{key.path}"></a>`{key.path}`', *(cell(part) for part in key[1 : len(heads)])]
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """*text* in a table."""
    return text.replace("|", "\\|").replace("``", "`").replace("\n", " ")


def written(value: Any) -> str:
    """A value as YAML has it, on one line.

    >>> written({"a": [1, 2]}), written(True)
    ('{a: [1, 2]}', 'true')
    """
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=500)
    return text.removesuffix("...\n").strip()


def sentence(text: str) -> str:
    """*text* as a cell has it: with a capital letter and no full stop.

    >>> sentence("so many of them."), sentence("`a` is b")
    ('So many of them', '`a` is b')
    """
    return text[:1].upper() + text[1:].rstrip(".")
