"""
Measure how quick the program is and compare it with its targets. Takes about a minute; nothing else should run.

    python -m benchmarks [--markdown] [--note TEXT]

Prints a table; ``--markdown`` writes it into docs/benchmarks.md too, under a note if there is one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.table import line, machine, markdown, measure

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, beside its targets.")
    parser.add_argument("--markdown", action="store_true", help=f"write docs/{PAGE.name}")
    parser.add_argument("--note", default="", help="a sentence above the table of the page")
    options = parser.parse_args()
    where = machine()
    print(where)
    rows = []
    for row in measure():
        rows.append(row)
        print(line(row), flush=True)
    if options.markdown:
        PAGE.write_text(markdown(rows, where, options.note), encoding="utf-8")
        print(f"Written: docs/{PAGE.name}")


if __name__ == "__main__":
    main()
