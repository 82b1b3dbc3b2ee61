"""How fast a sweep goes: points per second in one process and in two, and what keeping every point in a store costs.

    python -m benchmarks.sweep            # 1,000 points
    python -m benchmarks.sweep 200

Each way is run in a program of its own, as a command is; the time is that of the sweep, with the start of processes
and without that of the program.
Times are of the wall clock: with other work on the machine they say little.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import trainsim as ts
from trainsim.study.sweep import run_design

BASE = {
    "model": {"name": "small", "layers": 8, "hidden": 1024, "heads": 16, "vocab": 32000, "max_positions": 2048},
    "cluster": {"topology": "dgx_a100", "nodes": 2},
    "training": {"sequence_length": 1024, "global_batch": 64},
    "simulation": {"detail": "block"},
}
AXES = {
    "parallel.tp": [1, 2, 4, 8],
    "parallel.pp": [1, 2],
    "training.micro_batch": [1, 2],
    "training.recompute": ["none", "full"],
}
"""32 points; seeds of the simulation make as many more as are wanted."""
POINTS = 1000
WAYS = {  # backend, processes, with a store
    "one process": ("serial", 1, False),
    "one process, store": ("serial", 1, True),
    "two processes": ("processes", 2, False),
    "two processes, store": ("processes", 2, True),
}


def seconds(way: str, points: int) -> float:
    """Seconds of the sweep, run in this program."""
    from time import perf_counter

    backend, workers, stored = WAYS[way]
    axes = {"simulation.seed": list(range(points // 32)), **AXES}
    base = ts.Scenario.from_dict(BASE)
    base.run()  # as every program has, before it runs many
    with TemporaryDirectory() as folder:
        store = Path(folder) / "sweep.sqlite" if stored else None
        began = perf_counter()
        swept = run_design(base, axes, backend=backend, workers=workers, progress=False, store=store)
        took = perf_counter() - began
    assert all(outcome.value for outcome in swept.outcomes)
    return took


def main(points: int) -> None:
    """Print a line per way, and what follows."""
    took = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.sweep", "--way", way, str(points)]
        took[way] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"{way:22} {took[way]:7.2f} s {points // 32 * 32 / took[way]:8.1f} points/s", flush=True)
    one, kept, two, both = took.values()
    print(
        f"two processes are {one / two:.2f} times as fast as one; the store costs {kept / one - 1:+.1%} in one process,"
    )
    print(f"{both / two - 1:+.1%} in two")


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--way"]:
        print(json.dumps(seconds(words[1], int(words[2]))))
    else:
        main(int(words[0]) if words else POINTS)
