"""How good the planner is and how quick. Takes some minutes a part on two cores.

    python -m benchmarks.plan [SPACE ...]               # speed: bounds, and whole answers
    python -m benchmarks.plan --exhaustive [SPACE ...]  # every layout that may fit, run; --store DIR keeps the runs
    python -m benchmarks.plan --published               # layouts that others measured

Prints tables in Markdown; ``--write`` puts them into docs/planner.md. Spaces are those of
``benchmarks/planner/spaces.py``. Real times mean little with other work on the machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.accuracy_page import replaced
from benchmarks.planner import exhaustive, page, speed
from benchmarks.planner.spaces import SPACES

PAGE = Path(__file__).parents[1] / "docs" / "planner.md"
CHECKED = ("bloom", "bloom-orders")
"""Spaces of which every layout that may fit is run in minutes."""
TIMED = ("bloom", "bloom-wide", "llama", "mixtral", "deepseek")


def main() -> None:
    """Measure what is asked for, print it, and write where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description="How good the planner is.")
    parser.add_argument("spaces", nargs="*", metavar="SPACE", help=f"of {', '.join(SPACES)}")
    parser.add_argument("--exhaustive", action="store_true", help="run every layout that may fit")
    parser.add_argument("--published", action="store_true", help="replay layouts that others measured")
    parser.add_argument("--store", type=Path, help="folder that keeps the runs of --exhaustive")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/planner.md")
    options = parser.parse_args()
    if options.published:
        made = page.published()
    elif options.exhaustive:
        lines = exhaustive.document(exhaustive.checked(options.spaces or CHECKED, options.store))
        made = {"exhaustive": "\n".join(lines)}
    else:
        made = {"speed": "\n".join(speed.table({name: speed.speed(name) for name in options.spaces or TIMED}))}
    for name, text in made.items():
        print(f"\n{name}\n{text}")
    if options.write:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main()
