"""Orders recorded from the frameworks, and what belongs to them: makespans, windows, versions (tests/data/schedules)."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent / "data" / "schedules"


@cache
def table(name: str) -> list[dict[str, str]]:
    """Rows of one of the tables."""
    with gzip.open(HERE / f"{name}.csv.gz", "rt") as lines:
        return list(csv.DictReader(lines))


@cache
def recorded() -> dict[str, dict[str, str]]:
    """Rows of the table of orders by file."""
    return {row["file"]: row for row in table("orders")}


@cache
def _texts() -> list[str]:
    with gzip.open(HERE / "orders.txt.gz", "rt") as lines:
        return lines.read().strip().split("\n\n")


@cache
def cells(file: str) -> tuple[tuple[str, ...], ...]:
    """The order that was recorded."""
    return tuple(tuple(line.split(",")) for line in _texts()[int(recorded()[file]["order"])].split("\n"))


def numbers(file: str) -> dict[str, int | None]:
    """Ranks, microbatches, chunks and group of an order."""
    row = recorded()[file]
    return {
        "stages": int(row["p"]),
        "microbatches": int(row["m"]),
        "chunks": int(row["v"]),
        "group": int(row["group"]) if row["group"] else None,
    }


@cache
def by_file(name: str) -> dict[str, list[dict[str, str]]]:
    """Rows of a table by the order that they are of."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in table(name):
        found[row["file"]].append(row)
    return dict(found)
