"""The targets, what was measured, and the table that sets one beside the other."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.commands import Usage, typical

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: what was measured, in which unit, and the most that it should be (None: nothing was promised)."""

    what: str
    measured: float
    unit: str
    target: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the target is met, or by how much it is missed."""
        if self.target is None:
            return ""
        if self.measured <= self.target:
            return "met"
        return f"missed by {self.measured / self.target - 1:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A scenario for ``trainsim run`` and its targets: seconds of real time, bytes of memory."""

    scenario: str
    seconds: float
    memory: float | None = None
    repeat: int = 5


RUNS = (
    Run(scenario="bloom_3d", seconds=2.5),
    Run(scenario="bloom_slow_node", seconds=4.0),
    Run(scenario="llama3_405b_16k", seconds=3.0, memory=0.5 * GB),
    Run(scenario="scale_131072", seconds=6.0, memory=1.0 * GB, repeat=3),
)
IMPORT = 0.3  # seconds
CLOSED_FORM = 2.0  # milliseconds
ENGINE = {"no marks": 2.0, "marks": 0.5}  # microseconds per instruction that shares nothing


def measure() -> Iterator[Row]:
    """All rows, each when it is measured."""
    for run in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            took = typical(_trainsim("run", run.scenario, "--out", folder), run.repeat)
        yield from _rows(f"`trainsim run {run.scenario}`", took, run.seconds, run.memory)
    took = typical([sys.executable, "-c", "import trainsim"], 5)
    bare = typical([sys.executable, "-c", ""], 5)
    yield Row(what="`import trainsim`, less an empty program", measured=took.wall - bare.wall, unit="s", target=IMPORT)
    for name, milliseconds in _inside("closed_form").items():
        yield Row(what=f"closed form of {name}", measured=milliseconds, unit="ms", target=CLOSED_FORM)
    for name, microseconds in _inside("engine").items():
        yield Row(what=f"engine: {name}", measured=microseconds, unit="us", target=_engine_target(name))


def _trainsim(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trainsim", *arguments]


def _rows(what: str, took: Usage, seconds: float, memory: float | None) -> Iterator[Row]:
    yield Row(what=what, measured=took.wall, unit="s", target=seconds)
    yield Row(what="- processor time", measured=took.cpu, unit="s")
    yield Row(what="- most memory", measured=took.memory / GB, unit="GB", target=memory / GB if memory else None)


def _engine_target(case: str) -> float | None:
    name, _, marks = case.rpartition(", ")
    return ENGINE[marks] if name.startswith("no sharing") else None


def _inside(part: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.inside", part]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


def line(row: Row) -> str:
    """A row as plain text."""
    target = "" if row.target is None else f"<= {row.target:g} {row.unit}"
    return f"{row.what:44s} {target:>10s} {row.measured:9.3f} {row.unit:2s}  {row.verdict}"


def machine() -> str:
    """What the numbers were measured on, in words."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "simpy", "matplotlib"))
    busy = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return (
        f"{_cores()} cores of {_processor()}, {platform.system()}, Python {platform.python_version()}, {versions}; "
        f"load average at the start {busy}"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [text.partition(":")[2].strip() for text in file if text.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def markdown(rows: Sequence[Row], where: str, note: str) -> str:
    """The page ``docs/benchmarks.md``."""
    lines = ["# How quick it is", "", *([note, ""] if note else []), f"Measured on {where}.", "", EXPLAINED, ""]
    lines += ["| what | target | measured | |", "|---|--:|--:|---|"]
    for row in rows:
        target = "" if row.target is None else f"≤ {row.target:g} {row.unit}"
        what = row.what.replace("- ", "&nbsp;&nbsp;&nbsp;&nbsp;", 1) if row.what.startswith("- ") else row.what
        lines.append(f"| {what} | {target} | {row.measured:.3g} {row.unit} | {row.verdict} |")
    return "\n".join(lines) + "\n"


EXPLAINED = """\
Made by `python -m benchmarks --markdown`. Commands are whole processes: start, imports, simulation, Gantt charts (PNG
and SVG), the Chrome trace, the page and `result.json`. Real time, processor time of all processes of a command and the
most memory of one of them are medians of five runs (three of the longest) after one that is not counted. The closed
form is timed on a resolved job in a warm process. The engine is timed on synthetic steps, per instruction;
`benchmarks/engine.py` has more of them."""
