"""
Speed of folding and engine on synthetic steps: process time, median of three, one process.

    python benchmarks/engine.py [base] [bloom] [llama] [huge] [plain]
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.workload import Hardware, Job, build
from trainsim.engine import run
from trainsim.fold import fold, prune, unfolded

FLAT: dict[str, Any] = {"layers": (4,) * 4, "pp": 4, "microbatches": 64}
OVERLAP: dict[str, Any] = {
    "pp": 1, "layers": (200,), "microbatches": 1, "tp": 4, "dp": 8, "gradients": 30e9, "buckets": 50,
}  # fmt: skip
BLOOM: dict[str, Any] = {"tp": 4, "pp": 12, "dp": 8, "microbatches": 128, "layers": (5, *(6,) * 10, 5)}
LLAMA: dict[str, Any] = {"tp": 8, "pp": 16, "dp": 128, "layers": (7, *(8,) * 14, 7), "recompute": False}
HUGE: dict[str, Any] = {"tp": 8, "pp": 16, "dp": 1024, "microbatches": 16, "layers": (8,) * 16}


@dataclass(frozen=True)
class Case:
    """A step and how to run it."""

    name: str
    job: Job
    hardware: dict[str, Any] = field(default_factory=dict)
    merge: bool = True
    folded: bool = True
    repeat: int = 3


CASES = {
    "base": [
        Case("no sharing, tp1, no marks", Job(**FLAT), merge=False),
        Case("no sharing, tp4, no marks", Job(**FLAT, tp=4), merge=False),
        Case("no sharing, tp4, marks", Job(**FLAT, tp=4)),
        Case("all kernels overlap DP, no marks", Job(**OVERLAP), merge=False),
        Case("all kernels overlap DP, marks", Job(**OVERLAP)),
        Case("messages take SMs, marks", Job(**FLAT, tp=4, dp=4, p2p_sm=0.05, activation=400e6)),
    ],
    "bloom": [
        Case("BLOOM, marks", Job(**BLOOM), {"gpus_per_nic": 2}),
        Case("BLOOM, no marks", Job(**BLOOM), {"gpus_per_nic": 2}, merge=False, repeat=1),
        Case("BLOOM, straggler, marks", Job(**BLOOM, slow={77: 1.1}), {"gpus_per_nic": 2}),
        Case("BLOOM, straggler, no marks", Job(**BLOOM, slow={77: 1.1}), {"gpus_per_nic": 2}, merge=False, repeat=1),
    ],
    "llama": [
        Case("405B, 16 microbatches, marks", Job(**LLAMA, microbatches=16)),
        Case("405B, 32 microbatches, marks", Job(**LLAMA, microbatches=32)),
        Case("405B, 16 microbatches, no marks", Job(**LLAMA, microbatches=16), merge=False, repeat=1),
        Case("405B, 16 microbatches, straggler, marks", Job(**LLAMA, microbatches=16, slow={9000: 1.1}), repeat=1),
        Case("405B, straggler, no marks", Job(**LLAMA, microbatches=16, slow={9000: 1.1}), merge=False, repeat=1),
    ],
    "huge": [
        Case("131072 ranks, straggler", Job(**HUGE, slow={70001: 1.1}), repeat=1),
        Case("131072 ranks, straggler, shared NICs", Job(**HUGE, slow={70001: 1.1}), {"gpus_per_nic": 2}, repeat=1),
        Case("131072 ranks, slow NIC", Job(**HUGE), {"slow_nic": {70001: 0.5}}, repeat=1),
    ],
    "plain": [
        Case("1024 ranks, folded", Job(tp=8, pp=8, dp=16, microbatches=16, layers=(4,) * 8)),
        Case("1024 ranks, unfolded", Job(tp=8, pp=8, dp=16, microbatches=16, layers=(4,) * 8), folded=False, repeat=1),
        Case("1024 ranks, unfolded, tp1", Job(pp=16, dp=64, microbatches=32, layers=(4,) * 16), folded=False, repeat=1),
        Case("sweep corner: pp16, 64 microbatches", Job(pp=16, dp=2, microbatches=64, layers=(1,) * 16)),
    ],
}  # fmt: skip


def timed(function: Callable[[], Any], repeat: int) -> tuple[Any, float]:
    """(Last result, median process time in seconds)."""
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        result = function()
        seconds.append(time.process_time() - began)
    return result, statistics.median(seconds)


def measure(case: Case) -> str:
    """One line of the table."""
    hardware = Hardware(ranks=case.job.ranks, **case.hardware)
    system, building = timed(lambda: build(case.job, hardware), 1)
    pruned, pruning = timed(lambda: prune(system), case.repeat)
    quotient, folding = timed(lambda: (fold if case.folded else unfolded)(pruned), case.repeat)
    trace, running = timed(lambda: run(quotient, merge=case.merge), case.repeat)
    _, expanding = timed(lambda: [trace.spans(0, chain) for chain in trace.chain_names(0)], 2)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    columns = (
        case.name, case.job.ranks, quotient.classes, quotient.rounds, building, pruning, folding, running,
        trace.operations, trace.row_count, trace.events, 1e6 * running / trace.operations, trace.duration,
        1e3 * expanding, memory,
    )  # fmt: skip
    return " ".join(format(column, form) for column, form in zip(columns, COLUMNS.values(), strict=True))


COLUMNS = {
    "case": "<42s", "ranks": "6d", "classes": "7d", "rounds": "6d", "build_s": "7.3f", "prune_s": "7.3f",
    "fold_s": "7.3f", "run_s": "7.3f", "spans": "8d", "rows": "7d", "events": "8d", "us/span": "7.2f",
    "step_s": "9.4f", "expand_ms": "9.1f", "MB": "6.0f",
}  # fmt: skip


def main(names: list[str]) -> None:
    """Print the table."""
    print(
        *(
            format(name, f"{'<' if name == 'case' else '>'}{form.strip('<sdf').split('.')[0]}")
            for name, form in COLUMNS.items()
        )
    )
    for name in names or CASES:
        for case in CASES[name]:
            print(measure(case), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
