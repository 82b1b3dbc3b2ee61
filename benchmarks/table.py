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

from benchmarks.checkouts import HERE
from benchmarks.commands import Usage, typical, used

GB = 1e9
PROGRAM = ("-m", "trainsim")


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
    """A scenario for ``trainsim run`` with *changes* and its targets: seconds of processor time, bytes of memory.
    ``title`` says what the changes are."""

    scenario: str
    cpu: float
    memory: float | None = None
    changes: tuple[str, ...] = ()
    title: str = ""
    repeat: int = 3

    @property
    def words(self) -> list[str]:
        """The words after ``trainsim``."""
        return ["run", self.scenario, *(word for change in self.changes for word in ("--set", change))]


LARGEST = ("cluster.nodes=32768", "training.global_batch=32768")
RUNS = (
    Run(scenario="quickstart", cpu=1.8),
    Run(scenario="bloom_3d", cpu=3.0),
    Run(scenario="llama3_405b_16k", cpu=3.0, memory=0.5 * GB),
    Run(scenario="scale_131072", cpu=6.5, memory=0.6 * GB),
    Run(scenario="scale_131072", cpu=15.0, changes=LARGEST, title="262,144 GPUs", repeat=1),
)
ANY = 6.0  # seconds of processor time of any scenario that ships
IMPORT = 0.5  # seconds of processor time
CLOSED_FORM, POINT = 2.0, 12.0  # milliseconds
ENGINE = {"no marks": 2.0, "marks": 0.5}  # microseconds per instruction that shares nothing


def measure() -> Iterator[Row]:
    """All rows, each when it is measured."""
    for run in RUNS:
        yield from _rows(run, _ran(run.words, run.repeat))
    slowest, took = max(((name, _ran(["run", name], 1).cpu) for name in others()), key=lambda item: item[1])
    yield Row(what=f"the slowest of all others, `{slowest}`", measured=took, unit="s", target=ANY)
    bare = typical([sys.executable, "-c", ""], 5).cpu
    for what, words in {
        "`import trainsim`": ["-c", "import trainsim"],
        "`trainsim --help`": [*PROGRAM, "--help"],
    }.items():
        took = typical([sys.executable, *words], 5).cpu - bare
        yield Row(what=f"{what}, less an empty program", measured=took, unit="s", target=IMPORT)
    for name, milliseconds in _inside("closed_form").items():
        yield Row(what=f"closed form of {name}", measured=milliseconds, unit="ms", target=CLOSED_FORM)
    for name, milliseconds in _inside("point").items():
        yield Row(what=f"point of a sweep {name}, whole blocks", measured=milliseconds, unit="ms", target=POINT)
    for name, microseconds in _inside("engine").items():
        yield Row(what=f"engine: {name}", measured=microseconds, unit="us", target=_engine_target(name))


def others() -> list[str]:
    """The scenarios that ship and have no row of their own."""
    known = {run.scenario for run in RUNS}
    return sorted(file.stem for file in (HERE / "scenarios").glob("*.yaml") if file.stem not in known)


def _ran(words: list[str], repeat: int) -> Usage:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *PROGRAM, *words, "--out", folder]
        return typical(command, repeat) if repeat > 1 else used(command)


def _rows(run: Run, took: Usage) -> Iterator[Row]:
    what = f"`trainsim run {run.scenario}`{', ' if run.title else ''}{run.title}"
    yield Row(what=what, measured=took.cpu, unit="s", target=run.cpu)
    yield Row(what="- wall time", measured=took.wall, unit="s")
    memory = run.memory / GB if run.memory else None
    yield Row(what="- peak memory", measured=took.memory / GB, unit="GB", target=memory)


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
    return f"{row.what:60s} {target:>10s} {row.measured:9.3f} {row.unit:2s}  {row.verdict}"


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


def table(rows: Sequence[Row]) -> list[str]:
    """A line per row, in Markdown."""
    lines = ["| what | target | measured | |", "|---|--:|--:|---|"]
    for row in rows:
        target = "" if row.target is None else f"≤ {row.target:g} {row.unit}"
        what = row.what.replace("- ", "&nbsp;&nbsp;&nbsp;&nbsp;", 1) if row.what.startswith("- ") else row.what
        lines.append(f"| {what} | {target} | {row.measured:.3g} {row.unit} | {row.verdict} |")
    return lines
