"""Parts of the program that are timed from inside, in a process of their own: ``python -m benchmarks.inside PART``."""

from __future__ import annotations

import json
import statistics
import sys
import time

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


PARTS = {"closed_form": closed_form, "engine": engine}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]]()))
