"""
How right the collectives are: ``python -m benchmarks.collectives [--logs]``.

Public nccl-tests logs (``tests/data/collectives``) beside what ``ts.collective_time`` says. Constants were fitted to one
half of the logs; the other half is machines, or software, that they had not met.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import trainsim as ts
from trainsim.hardware.cluster import Cluster
from trainsim.hardware.topology import Changes, find_topology
from trainsim.hardware.cluster import build_cluster

DATA = Path(__file__).parents[1] / "tests" / "data" / "collectives"
MIB = 1 << 20
LAUNCH = 4.3e-6
"""Seconds per GPU that one process takes to launch kernels on all GPUs, as nccl-tests has it with -g 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log: where it was measured, with which operation, and seconds by bytes."""

    name: str
    said: Mapping[str, Any]
    seconds: Mapping[int, float]

    @property
    def clean(self) -> bool:
        return "left_out" not in self.said

    @property
    def far(self) -> bool:
        return int(self.said["nodes"]) > 1

    def cluster(self) -> Cluster:
        machine = dict(self.said["machine"])
        return build_cluster(find_topology(machine.pop("topology")), Changes(values={"nodes": self.said["nodes"], **machine}))

    @property
    def ranks(self) -> list[int]:
        per_node = self.cluster().gpus_per_node
        return [n * per_node + g for n in range(self.said["nodes"]) for g in range(self.said["gpus_per_node"])]

    def predicted(self, nbytes: int) -> float:
        """Seconds, at least as long as one process takes to launch on all GPUs, where one did."""
        seconds = ts.collective_time(self.cluster(), self.said["operation"], self.ranks, nbytes, self.said["algorithm"])
        return max(seconds, LAUNCH * len(self.ranks)) if self.said.get("processes") == 1 else seconds

    def errors(self, least: float = 0.0, below: float = float("inf")) -> list[float]:
        """Predicted over measured time, less 1, of the sizes from *least* to *below* bytes."""
        return [self.predicted(n) / t - 1 for n, t in self.seconds.items() if least <= n < below]


@lru_cache(maxsize=1)
def logs() -> tuple[Log, ...]:
    """All logs."""
    import yaml

    times: dict[str, dict[int, float]] = {}
    with (DATA / "times.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            times.setdefault(row["log"], {})[int(row["bytes"])] = float(row["microseconds"]) * 1e-6
    said = yaml.safe_load((DATA / "logs.yaml").read_text(encoding="utf-8"))
    return tuple(Log(name=name, said=said[name], seconds=times[name]) for name in said)


CLASSES = {"64 KiB to 1 MiB": (MIB / 16, MIB), "1 to 16 MiB": (MIB, 16 * MIB), "from 1 MiB": (MIB, float("inf")), "from 16 MiB": (16 * MIB, float("inf"))}


def median_error(some: Iterable[Log], least: float, below: float) -> tuple[float, float, int]:
    """(Median, 90th percentile, number) of absolute errors of all sizes of *some* logs."""
    errors = sorted(abs(e) for log in some for e in log.errors(least, below))
    if not errors:
        return 0.0, 0.0, 0
    return statistics.median(errors), errors[int(0.9 * (len(errors) - 1))], len(errors)


def main() -> None:
    if "--logs" in sys.argv:
        for log in logs():
            cells = []
            for least, below in ((MIB / 16, MIB), (MIB, 16 * MIB), (16 * MIB, 256 * MIB), (256 * MIB, float("inf"))):
                e = log.errors(least, below)
                cells.append(f"{statistics.median(e):+6.1%}" if e else "      ")
            worst = max(log.seconds)
            print(f"{log.said.get('half') or '-':5} {'  ' if log.clean else 'x '}{log.name[:58]:58} {log.said['nodes']}x{log.said['gpus_per_node']:<3}", *cells, "  ", f"{log.said['algorithm']}", log.said["source"][:40])
    for where, far in (("in a node", False), ("across nodes", True)):
        for half in ("fit", "score"):
            some = [log for log in logs() if log.clean and log.far is far and log.said["half"] == half]
            print(f"{where:13} {half:6}", *(f"{name}: {m:5.1%} / {p:5.1%} ({n})" for name, (a, b) in CLASSES.items() for m, p, n in [median_error(some, a, b)]))


if __name__ == "__main__":
    main()
