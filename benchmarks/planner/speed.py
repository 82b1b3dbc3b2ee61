"""How quick a plan is: layouts per second through the bounds, and whole answers, each in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

from benchmarks.commands import Usage, used
from benchmarks.planner.spaces import SPACES, Case
from trainsim.study.planning.plan import Question, plan_for
from trainsim.study.planning.search import _bounds
from trainsim.study.planning.space import space_of

WORKERS = (1, 2)
QUICK = 1000.0
"""Layouts per second that should go through the bounds on two cores."""


class Speed(NamedTuple):
    """Of one space: its layouts, seconds of processor time of the bounds in one process, their real seconds by number
    of processes, what the answer says, and what the command took."""

    layouts: int
    cpu: float
    wall: Mapping[int, float]
    answer: Mapping[str, Any]
    whole: Usage


def speed(name: str) -> Speed:
    """The speed of the space of that name, measured one program after the other."""
    bounds = {workers: _said("bounds", name, str(workers))[0] for workers in WORKERS}
    answer, whole = _said("whole", name)
    first = bounds[1]
    return Speed(first["layouts"], first["cpu"], {n: found["wall"] for n, found in bounds.items()}, answer, whole)


def _said(*words: str) -> tuple[dict[str, Any], Usage]:
    """What a part of this module says in a program of its own, and what that took."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "said.json"
        took = used([sys.executable, "-m", "benchmarks.planner.speed", str(file), *words])
        return json.loads(file.read_text()), took


def bounds_of(case: Case, workers: int) -> dict[str, Any]:
    """Layouts of a space, and seconds of their bounds, the listing of them included."""
    base = case.scenario()
    base.resolve()  # as a command has by then
    began, busy = perf_counter(), process_time()
    layouts = list(space_of(base, case.grid))
    found, _ = _bounds(base, layouts, workers, False)
    took, cpu = perf_counter() - began, process_time() - busy
    verdicts = Counter("refused" if b.refused else "may fit" if b.fits else "too large" for b in found)
    return {"layouts": len(layouts), "wall": took, "cpu": cpu, **verdicts}


def whole(case: Case) -> dict[str, Any]:
    """The whole answer, as the command gives it without files."""
    found = plan_for(case.scenario(), Question(grid=case.grid, progress=False))
    said = found.to_dict()
    counts = {key: said[key] for key in ("layouts", "too_large", "slower", "run")}
    return {**counts, "refused": sum(said["refused"].values()), "best": said["choices"][0]["layout"]}


def table(speeds: Mapping[str, Speed]) -> list[str]:
    """A line per space, in Markdown."""
    lines = [
        "| space | layouts | too large | rejected | provably slower | simulated | bounds: CPU time per layout | "
        "layouts/s in one process, in two | the whole answer: wall time | CPU time | peak memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, s in speeds.items():
        case, a = SPACES[name], s.answer
        parts = (f"{a[key] / a['layouts']:.1%}" for key in ("too_large", "refused", "slower"))
        rates = ", ".join(f"{s.layouts / seconds:,.0f}" for seconds in s.wall.values())
        target = f" (≤ {case.target:.0f} s)" if case.target else ""
        lines.append(
            f"| {case.title} | {s.layouts:,} | {' | '.join(parts)} | {a['run']} | {1e3 * s.cpu / s.layouts:.2f} ms "
            f"| {rates} | {s.whole.wall:.1f} s{target} | {s.whole.cpu:.1f} s | {s.whole.memory / 1e9:.2f} GB |"
        )
    return lines


if __name__ == "__main__":
    file, part, name, *more = sys.argv[1:]
    told = bounds_of(SPACES[name], int(more[0])) if part == "bounds" else whole(SPACES[name])
    Path(file).write_text(json.dumps(told))
