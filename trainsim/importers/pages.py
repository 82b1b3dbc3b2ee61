"""
The pages about importers, made from their tables of keys.

    python -m trainsim.importers.pages docs/importers      # writes them anew
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from trainsim.importers.importer import Effect, Importer, Key, importers

HEADINGS = {
    Effect.READ: ("What is read", "what follows from it"),
    Effect.MISSING: ("What is not modelled", "what of it"),
    Effect.NONE: ("What has no effect on speed and memory", "why"),
}


def page(importer: Importer) -> str:
    """The page about one importer.

    >>> page(importers["trainsim"]).splitlines()[0]
    '# A scenario of trainsim'
    """
    lines = [f"# {importer.title[:1].upper()}{importer.title[1:]}", "", importer.about, ""]
    lines += [f"`trainsim import FILE --as {importer.name}`; `--as` may be omitted if the file's kind can be recognised.", ""]  # fmt: skip # noqa: E501
    lines += [f"Left open: {importer.leaves_open}", ""]
    lines += [*(f"* {note}" for note in importer.notes), *([""] if importer.notes else [])]
    for effect, (title, heading) in HEADINGS.items():
        keys = [key for key in importer.keys if key.effect is effect]
        if keys:
            lines += [f"## {title}", "", f"| key | {heading} |", "|---|---|", *_rows(keys), ""]
    lines.append("Keys in none of these tables are reported as unknown, with the closest known one.")
    return "\n".join(lines) + "\n"


def index() -> str:
    """The page that lists them."""
    rows = [f"| [{name}]({name}.md) | {importer.title} | {importer.leaves_open} |" for name, importer in importers.items()]  # fmt: skip # noqa: E501
    head = ["# Files of other tools", "", "| importer | files | what they leave open |", "|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def pages() -> dict[str, str]:
    """All pages by file name."""
    return {"index.md": index(), **{f"{name}.md": page(importer) for name, importer in importers.items()}}


def _rows(keys: Iterable[Key]) -> list[str]:
    """A row for each reason, with all its keys."""
    reasons: dict[str, list[str]] = {}
    for key in keys:
        values = [value for value in key.harmless if value is not None]
        unless = f" (unless {' or '.join(_word(value) for value in values)})" if values else ""
        reasons.setdefault(key.words, []).append(f"`{key.name}`{unless}")
    return [f"| {', '.join(names)} | {words} |".replace("||", "\\|\\|") for words, names in reasons.items()]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "empty"


def main() -> None:
    """Write all pages into the folder of the command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/importers")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
