"""
Measure how quick the program is and compare it with its targets. Takes a few minutes; nothing else should run.

    python -m benchmarks [--markdown] [--note TEXT] [--against STATE]

Prints three tables: targets, time by phase beside an older state of the program, and what special things cost;
``--markdown`` writes them into docs/benchmarks.md too, under a note if there is one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from benchmarks import cliffs, phases, table
from benchmarks.checkouts import BEFORE, HERE, checkout
from benchmarks.page import page

PAGE = HERE / "docs" / "benchmarks.md"
T = TypeVar("T")


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, beside its targets.")
    parser.add_argument("--markdown", action="store_true", help=f"write docs/{PAGE.name}")
    parser.add_argument("--note", default="", help="a sentence above the tables of the page")
    parser.add_argument(
        "--against", default=BEFORE, metavar="STATE", help="a commit or a folder to compare with; '' for none"
    )
    options = parser.parse_args()
    where = table.machine()
    print(where)
    with tempfile.TemporaryDirectory() as folder:
        against = checkout(options.against, Path(folder)) if options.against else None
        rows = _told(table.measure(), table.line)
        found = _told(phases.measure(against=against), lambda one: "\n".join(phases.table([one])))
    special = _told(cliffs.apart(), lambda one: cliffs.table([one])[-1])
    if options.markdown:
        text = page(rows, found, special, where=where, before=options.against, note=options.note)
        PAGE.write_text(text, encoding="utf-8")
        print(f"Written: docs/{PAGE.name}")


def _told(found: Iterable[T], text: Callable[[T], str]) -> list[T]:
    """All that is found, each printed when it is there."""
    out = []
    for one in found:
        print(text(one), flush=True)
        out.append(one)
    return out


if __name__ == "__main__":
    main()
