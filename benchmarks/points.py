"""How many points of a sweep a core runs per second, and where their time goes: ``python -m benchmarks.points``.

Half of the points of a grid warm the process up; the others, which are new to it, are measured, each in the order in
which a study runs a point. Every round is a process of its own, forked after the warm-up.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, TypeVar

import trainsim as ts
from trainsim.contracts.exact import tick_for
from trainsim.engine import run
from trainsim.fold import fold, prune
from trainsim.garbage import no_search_for_cycles
from trainsim.program.estimate import estimate
from trainsim.program.lower import lowered
from trainsim.program.rearranged import worked_out
from trainsim.result.result import Result
from trainsim.simulate import Simulation, expected_duration
from trainsim.study.trial import Measures, measures

T = TypeVar("T")
Changes = Mapping[str, Any]
PHASES = ("resolve", "work out", "lower", "estimate", "prune, fold", "engine", "measures")
ROUNDS = 5
SCHEDULES = ("1f1b", "gpipe", "interleaved-1f1b")


def _document(model: str, nodes: int, batch: int, length: int = 4096) -> dict[str, Any]:
    return {
        "name": "point", "model": model, "framework": "megatron-core",
        "cluster": {"topology": "dgx_h100", "nodes": nodes}, "parallel": {"tp": 4, "pp": 2},
        "training": {"sequence_length": length, "micro_batch": 1, "global_batch": batch},
        "simulation": {"detail": "block"},
    }  # fmt: skip


JOBS: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "64 GPUs": (
        _document("llama-2-7b", 8, 128),
        {"parallel.tp": [1, 2, 4, 8], "parallel.pp": [2, 4, 8], "training.micro_batch": [1, 2],
         "pipeline.schedule": [*SCHEDULES]},
    ),
    "1,024 GPUs": (
        _document("gpt-175b", 128, 1024, 2048),
        {"parallel.tp": [2, 4, 8], "parallel.pp": [4, 8, 16], "training.micro_batch": [1, 2],
         "pipeline.schedule": [*SCHEDULES]},
    ),
    "64 GPUs, zero bubble": (
        _document("llama-2-7b", 8, 128),
        {"parallel.tp": [1, 2, 4, 8], "parallel.pp": [2, 4, 8], "training.micro_batch": [1, 2],
         "pipeline.schedule": ["zb-h1", "zb-h2", "zb-v"]},
    ),
}  # fmt: skip
"""Name -> the scenario and the grid over it."""


def point(base: ts.Scenario, changes: Changes, spent: dict[str, float]) -> Measures:
    """What a study keeps of one point; the seconds of each phase go to *spent*."""

    def timed(phase: str, do: Callable[[], T]) -> T:
        began = time.process_time()
        done = do()
        spent[phase] = spent.get(phase, 0.0) + time.process_time() - began
        return done

    scenario = base.replace(changes)
    with no_search_for_cycles():
        job = timed("resolve", scenario.resolve)
        parts = timed("work out", lambda: worked_out(job))
        plan = timed("lower", lambda: lowered(parts))
        expected = timed("estimate", lambda: estimate(parts))
        quotient = timed("prune, fold", lambda: fold(prune(plan.system)))
        trace = timed("engine", lambda: run(quotient, tick=tick_for(expected_duration(job, expected))))
        simulation = Simulation(job=job, plan=plan, trace=trace, estimate=expected, wall_s=0.0)
        return timed("measures", lambda: measures(Result(simulation=simulation)))


def points(grid: Mapping[str, list[Any]]) -> Iterator[Changes]:
    """The points of *grid*; interleaved ones have two chunks."""
    for values in product(*grid.values()):
        changes = dict(zip(grid, values, strict=True))
        yield changes | ({"pipeline.chunks": 2} if "interleaved" in changes["pipeline.schedule"] else {})


def measure(name: str) -> list[dict[str, float]]:
    """Of every round the milliseconds of each phase of the mean point."""
    document, grid = JOBS[name]
    base, known = ts.Scenario.from_dict(document), list(points(grid))
    for changes in known[::2]:
        point(base, changes, {})
    context = multiprocessing.get_context("fork")
    rounds = []
    for _ in range(ROUNDS):
        with context.Pool(1) as pool:
            rounds.append(pool.apply(_round, (base, known[1::2])))
    return rounds


def _round(base: ts.Scenario, some: list[Changes]) -> dict[str, float]:
    spent: dict[str, float] = {}
    for changes in some:
        point(base, changes, spent)
    return {phase: 1e3 * spent[phase] / len(some) for phase in PHASES}


def main(names: list[str]) -> None:
    """Print a line per job: points per second of CPU, and milliseconds of every phase, medians of the rounds."""
    print(f"{'':22}{'points/s':>10}{'ms':>8}" + "".join(f"{phase:>13}" for phase in PHASES))
    for name in names or list(JOBS):
        rounds = measure(name)
        whole = statistics.median(sum(each.values()) for each in rounds)
        parts = "".join(f"{statistics.median(each[phase] for each in rounds):13.2f}" for phase in PHASES)
        print(f"{name:22}{1e3 / whole:10.1f}{whole:8.2f}{parts}")


if __name__ == "__main__":
    main(sys.argv[1:])
