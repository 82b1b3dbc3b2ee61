"""
The page of the keys of ``result.json``, from its schema.

``python -m trainsim.report.result_page docs/result.md`` writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

INTRO = """# result.json

{description}

The same as a [JSON Schema](../trainsim/report/result.schema.json). This page is made from it by
`python -m trainsim.report.result_page docs/result.md`; a test compares both with real results.
"""
UNITS = {"1": "fraction"}


def schema() -> dict[str, Any]:
    """The JSON Schema of ``result.json``."""
    text = (files("trainsim.report") / "result.schema.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def page() -> str:
    """The page, as Markdown."""
    whole = schema()
    lines = [INTRO.format(description=whole["description"]), "| key | unit | meaning |", "|---|---|---|"]
    lines += [f"| `{path}` | {_unit(part)} | {part.get('description', '')} |" for path, part in keys(whole)]
    return "\n".join(lines) + "\n"


def keys(part: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every key by its path, with its schema; what a list holds stands behind ``[]``."""
    for name, inner in part.get("properties", {}).items():
        full = f"{path}.{name}" if path else name
        listed = inner.get("type") == "array"
        yield f"{full}[]" if listed else full, inner
        yield from keys(inner["items"] if listed else inner, f"{full}[]" if listed else full)


def _unit(part: Mapping[str, Any]) -> str:
    kinds = part.get("type")
    first = kinds[0] if isinstance(kinds, list) else kinds
    inner = part.get("items", part)
    if "unit" in inner:
        unit = UNITS.get(inner["unit"], inner["unit"])
    else:
        unit = {"integer": "number", "string": "text", "boolean": "yes or no"}.get(str(first), "")
    return f"{unit} or null" if isinstance(kinds, list) else unit


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/result.md").write_text(page(), encoding="utf-8")
