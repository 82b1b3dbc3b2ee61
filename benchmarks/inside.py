"""Parts of the program that are timed from inside, in a process of their own: ``python -m benchmarks.inside PART``."""

from __future__ import annotations

import json
import statistics
import sys
import time

POINT = {
    "name": "point", "model": "llama-2-7b", "framework": {"base": "neutral", "communication": {"tp_overlap": "none"}},
    "cluster": {"topology": "dgx_h100", "nodes": 8}, "parallel": {"tp": 4, "pp": 2, "sequence_parallel": True},
    "training": {"sequence_length": 4096, "micro_batch": 1, "global_batch": 128}, "simulation": {"detail": "block"},
}  # fmt: skip
GRID = {"parallel.tp": [2, 4, 8], "parallel.pp": [2, 4], "training.micro_batch": [1, 2]}
SCENARIOS = ("bloom_3d", "llama3_405b_16k", "scale_131072")


def closed_form() -> dict[str, float]:
    """Milliseconds of the closed-form estimate of each scenario once it is resolved and its templates are known."""
    import trainsim as ts
    from trainsim.program.estimate import estimate
    from trainsim.program.parts import work_out

    out = {}
    for name in SCENARIOS:
        job = ts.Scenario.load(name).resolve()
        estimate(work_out(job))
        seconds = []
        for _ in range(21):
            began = time.process_time()
            estimate(work_out(job))
            seconds.append(time.process_time() - began)
        out[name] = 1e3 * statistics.median(seconds)
    return out


def engine() -> dict[str, float]:
    """Microseconds of the engine per instruction on the basic steps of ``benchmarks/engine.py``."""
    from benchmarks.engine import CASES, COLUMNS, measure

    column = list(COLUMNS).index("us/span") - len(COLUMNS)
    return {case.name: float(measure(case).split()[column]) for case in CASES["base"]}


def point() -> dict[str, float]:
    """Milliseconds of a point of a sweep in a warm process: a 7B model on 64 GPUs, whole blocks."""
    import trainsim as ts
    from trainsim.study.sweep import run_design

    base = ts.Scenario.from_dict(POINT)
    run_design(base, GRID, workers=1)
    seconds = []
    for _ in range(5):
        began = time.process_time()
        swept = run_design(base, GRID, workers=1)
        seconds.append((time.process_time() - began) / len(swept.outcomes))
        assert not any(outcome.failure for outcome in swept.outcomes)
    return {"on 64 GPUs": 1e3 * statistics.median(seconds)}


PARTS = {"closed_form": closed_form, "engine": engine, "point": point}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]]()))
