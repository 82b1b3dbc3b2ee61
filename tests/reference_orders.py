"""Orders recorded from the frameworks, and what belongs to them: makespans, windows (tests/data/schedules)."""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from math import prod
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

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


def named(file: str) -> tuple[str, dict[str, int | None]]:
    """(Schedule, its numbers) of an order that may not be recorded itself: from the name of its file."""
    if file in recorded():
        return recorded()[file]["schedule"], numbers(file)
    found = re.fullmatch(r"(?P<kind>[a-z0-9_]+?)(?:_[gk](?P<g>\d+))?_p(?P<p>\d+)_m(?P<m>\d+)_v(?P<v>\d+)", file)
    assert found, file
    alike = (row for name, row in recorded().items() if re.match(rf"{found['kind']}(_[gk]\d+)?_p", name))
    schedule = next(row["schedule"] for row in alike if (row["v"] == "1") == (found["v"] == "1"))
    group = int(found["g"]) if found["g"] else None
    return schedule, {
        "stages": int(found["p"]),
        "microbatches": int(found["m"]),
        "chunks": int(found["v"]),
        "group": group,
    }


def small_first(files: Iterable[str], most: int) -> list[ParameterSet]:
    """The files, those with more than *most* passes for the slow run."""
    passes = {file: prod(int(number) for number in re.findall(r"_[pmvk](\d+)", file)) for file in files}
    return [pytest.param(file, marks=() if size <= most else pytest.mark.slow) for file, size in passes.items()]
