"""Orders recorded from the frameworks, and the makespans that belong to them (tests/data/schedules)."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent / "data" / "schedules"
NAMES = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "deepspeed_train": "1f1b",
    "interleaved1f1b": "interleaved-1f1b",
}
"""Recorded schedules that this package builds; the others are only replayed."""


@cache
def recorded() -> dict[str, dict[str, str]]:
    """Rows of orders.csv by file."""
    with (HERE / "orders.csv").open() as lines:
        return {row["file"]: row for row in csv.DictReader(lines)}


@cache
def cells(file: str) -> tuple[tuple[str, ...], ...]:
    """The order that was recorded."""
    with (HERE / "orders" / recorded()[file]["order"]).open() as lines:
        return tuple(tuple(row) for row in csv.reader(lines))


@cache
def makespans() -> dict[str, list[dict[str, str]]]:
    """Rows of makespans.csv by file."""
    found: dict[str, list[dict[str, str]]] = {}
    with (HERE / "makespans.csv").open() as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row["file"], []).append(row)
    return found
