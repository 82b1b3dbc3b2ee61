"""What people reported in public, beside what is simulated: ``data/public_reports.yaml``.

``python -m tests.tools.reports`` prints the table of docs/reports.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario

FILE = Path(__file__).parent / "data" / "public_reports.yaml"
GIB, GB = 2.0**30, 1e9


def _reserved(result: Result) -> float:
    full = max(result.memory.per_stage, key=lambda stage: stage.peak)
    return (full.peak - full.part("framework")) / GIB


def _allocated(result: Result) -> float:
    """What PyTorch's ``max_memory_allocated`` counts: no slack of the allocator, no context."""
    full = max(result.memory.per_stage, key=lambda stage: stage.peak)
    return (full.peak - full.part("framework") - full.part("slack")) / GIB


def _all_reduce(result: Result) -> float:
    from trainsim.collectives.pattern import collective_time

    cluster, nbytes = result.job.cluster, 1 << 30
    seconds = collective_time(cluster, "all_reduce", ranks=range(8), nbytes=nbytes)
    return 2 * 7 / 8 * nbytes / seconds / GB


MEASURES: Mapping[str, Callable[[Result], float]] = {
    "tokens/s/GPU": lambda result: result.tokens_per_s / result.job.parallel.ranks,
    "step s": lambda result: result.step_time,
    "HFU": lambda result: result.hfu,
    "allocated GiB": _allocated,
    "allocated GB": lambda result: _allocated(result) * GIB / GB,
    "reserved GiB": _reserved,
    "fits": lambda result: float(result.memory.fits),
    "all-reduce GB/s": _all_reduce,
    "parameters": lambda result: float(result.job.model.parameters),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that somebody measured; ``before``: what was simulated when the report was tried first, if anything."""

    entry: str
    page: str
    name: str
    scenario: Mapping[str, Any]
    changes: Mapping[str, Any]
    measures: str
    measured: float
    before: float | None = None

    def simulated(self) -> float:
        """The same number, simulated."""
        scenario = Scenario.from_dict(self.scenario)
        changed = scenario.replace(self.changes) if self.changes else scenario
        return MEASURES[self.measures](changed.run())

    def error(self, value: float) -> float:
        """*value* over the measured one less 1; 0 or 1 where the question is yes or no."""
        return float(value != self.measured) if self.measures == "fits" else value / self.measured - 1

    def __str__(self) -> str:
        return f"{self.entry}: {self.name}: {self.measures}"


def rows() -> list[Row]:
    """All of them, in the order of the file."""
    entries = yaml.safe_load(FILE.read_text())["entries"]
    return [
        Row(
            entry=name,
            page=entry["page"],
            scenario=entry["scenario"],
            changes=row.get("set", {}),
            **{key: value for key, value in row.items() if key != "set"},
        )
        for name, entry in entries.items()
        for row in entry["rows"]
    ]


def lines() -> Iterator[str]:
    """The table as Markdown."""
    yield "| report | row | | measured | before | now | error before | now |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for row in rows():
        try:
            now = row.simulated()
        except Exception as error:
            yield f"| {row.entry} | {row.name} | {row.measures} | {row.measured:g} | | {error} | | |"
            continue
        earlier = "not expressible" if row.before is None else f"{row.before:.4g}"
        before = "" if row.before is None else _error(row, row.before)
        numbers = (f"{row.measured:.5g}", earlier, f"{now:.4g}", before, _error(row, now))
        yield f"| {' | '.join((row.entry, row.name, row.measures, *numbers))} |"


def _error(row: Row, value: float) -> str:
    error = row.error(value)
    return ("wrong" if error else "right") if row.measures == "fits" else f"{100 * error:+.0f} %"
