"""The blocks of docs/planner.md that are made of measurements."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.planner import bigscience, nanotron, sc21


def published() -> dict[str, str]:
    """The text of each block about layouts that others measured, by name."""
    made: dict[str, Iterable[str]] = {
        "bigscience": bigscience.table(),
        "bigscience order": bigscience.found(),
        "sc21": sc21.table(),
        "sc21 near": sc21.found(),
        "nanotron": nanotron.table(),
        "nanotron regret": nanotron.found(),
    }
    return {name: "\n".join(lines) for name, lines in made.items()}
