"""
Where the time of ``trainsim run`` goes, by phase, in seconds of user CPU.

    python -m benchmarks.phases [--against COMMIT_OR_FOLDER] [--repeat N] [SCENARIO ...]

An older state of the program runs by turns with this one, so that a ratio compares runs of the same minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkouts import HERE, checkout
from benchmarks.commands import used
from benchmarks.watched import PHASES

WATCHED = Path(__file__).with_name("watched.py")
SCENARIOS = (
    "quickstart",
    "bloom_3d",
    "llama3_405b_16k",
    "scale_131072",
    "korthikanti_1t_full",
    "korthikanti_1t_selective",
)
END, TOTAL = "end", "total"
ALL = (*PHASES, END, TOTAL)
LONG = ("korthikanti_1t_full", "korthikanti_1t_selective")
"""Scenarios of which one run is enough, since it goes on long enough to tell."""
LEAST = 0.05
"""Seconds from which on a ratio is worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """A scenario: seconds of each phase now, and before if that was measured."""

    scenario: str
    now: Mapping[str, float]
    before: Mapping[str, float] | None = None


def measure(scenarios: Sequence[str] = SCENARIOS, *, against: Path | None = None, repeat: int = 3) -> Iterator[Phases]:
    """Medians of *repeat* runs of each scenario, by turns with those of the checkout *against*."""
    states = [HERE, *([against] if against else [])]
    for state in states:
        once(scenarios[0], state)  # byte code and the file cache are there from now on
    for scenario in scenarios:
        runs: dict[Path, list[Mapping[str, float]]] = {state: [] for state in states}
        for _ in range(repeat if scenario not in LONG else 1):
            for state in states:
                runs[state].append(once(scenario, state))
        now, *before = (typical(some) for some in runs.values())
        yield Phases(scenario=scenario, now=now, before=before[0] if before else None)


def once(scenario: str, state: Path) -> Mapping[str, float]:
    """One run of the program in the checkout *state*."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "phases.json"
        command = [sys.executable, "-P", str(WATCHED), str(out), "run", scenario, "--out", folder]
        total = used(command, package=state).user
        phases = json.loads(out.read_text())
    return {**phases, END: total - sum(phases.values()), TOTAL: total}


def typical(runs: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Medians, phase by phase."""
    return {phase: statistics.median(run.get(phase, 0.0) for run in runs) for phase in ALL}


def cell(found: Phases, phase: str) -> str:
    """Seconds of a phase, as ``before → now (ratio)`` if there is a before.

    >>> cell(Phases(scenario="a", now={"engine": 0.5}, before={"engine": 2.0}), "engine")
    '2.00 → 0.50 (0.25)'
    """
    now = f"{found.now[phase]:.2f}"
    if found.before is None:
        return now
    ratio = f" ({found.now[phase] / found.before[phase]:.2f})" if found.before[phase] >= LEAST else ""
    return f"{found.before[phase]:.2f} → {now}{ratio}"


def table(found: Sequence[Phases]) -> list[str]:
    """A line per phase, a column per scenario, in Markdown."""
    lines = ["| phase | " + " | ".join(f"`{one.scenario}`" for one in found) + " |", "|---|" + "--:|" * len(found)]
    return [*lines, *(f"| {phase} | " + " | ".join(cell(one, phase) for one in found) + " |" for phase in ALL)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases", description=(__doc__ or "").splitlines()[1])
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--against", default="", metavar="STATE", help="a commit or a folder to compare with")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        against = checkout(options.against, Path(folder)) if options.against else None
        for found in measure(options.scenarios, against=against, repeat=options.repeat):
            print("\n".join(table([found])), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
