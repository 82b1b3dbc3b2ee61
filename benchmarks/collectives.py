"""
How right the collectives are: ``python -m benchmarks.collectives [--logs] [--calibrated] [--write]``.

Public nccl-tests logs (``tests/data/collectives``) beside what ``ts.collective_time`` says. Constants were fitted to
one half of the logs; the other half is machines, or software, that they had not met. ``--logs`` shows each log,
``--calibrated`` fits each log with ten sizes or more to every other of them and tells the errors of the rest,
``--write`` makes the table and the picture of docs/collectives.md anew.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

import trainsim as ts
from trainsim.calibration.bases import Bases
from trainsim.calibration.calibrating import calibrated
from trainsim.calibration.measurements import CollectiveSweep, Measurements
from trainsim.hardware.cluster import Cluster, build_cluster
from trainsim.hardware.topology import Changes, find_topology

DATA = Path(__file__).parents[1] / "tests" / "data" / "collectives"
MIB = 1 << 20
LAUNCH = 4.3e-6
"""Seconds per GPU that one process takes to launch kernels on all GPUs, as nccl-tests does with -g 8."""
SIZES = {
    "64 KiB to 1 MiB": (MIB / 16, MIB),
    "1 to 16 MiB": (MIB, 16 * MIB),
    "from 16 MiB": (16 * MIB, inf),
    "from 1 MiB": (MIB, inf),
}
"""Classes of buffers: from so many bytes up to so many."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log: where it was measured, with which operation, and seconds by bytes."""

    name: str
    said: Mapping[str, Any]
    seconds: Mapping[int, float]

    @property
    def clean(self) -> bool:
        """Whether it counts: the machine is known, and nothing was wrong with it."""
        return "left_out" not in self.said

    @property
    def far(self) -> bool:
        """Whether it crosses a network."""
        return int(self.said["nodes"]) > 1

    @cached_property
    def cluster(self) -> Cluster:
        """The machine, as nearly as the log tells it."""
        machine = {"nodes": self.said["nodes"], **self.said["machine"]}
        return build_cluster(find_topology(machine.pop("topology")), Changes(values=machine))

    @property
    def ranks(self) -> list[int]:
        per_node = self.cluster.gpus_per_node
        return [n * per_node + g for n in range(self.said["nodes"]) for g in range(self.said["gpus_per_node"])]

    def predicted(self, nbytes: int) -> float:
        """Seconds; no fewer than one process takes to launch on all GPUs, where one did."""
        seconds = ts.collective_time(self.cluster, self.said["operation"], self.ranks, nbytes, self.said["algorithm"])
        return max(seconds, LAUNCH * len(self.ranks)) if self.said.get("processes") == 1 else seconds

    def errors(self, least: float = 0.0, below: float = inf) -> list[float]:
        """Predicted over measured time, less 1, of the sizes from *least* to *below* bytes."""
        return [self.predicted(n) / t - 1 for n, t in self.seconds.items() if least <= n < below]


@lru_cache(maxsize=1)
def logs() -> tuple[Log, ...]:
    """All logs."""
    times: dict[str, dict[int, float]] = {}
    with (DATA / "times.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            times.setdefault(row["log"], {})[int(row["bytes"])] = float(row["microseconds"]) * 1e-6
    said = yaml.safe_load((DATA / "logs.yaml").read_text(encoding="utf-8"))
    return tuple(Log(name=name, said=said[name], seconds=times[name]) for name in said)


def median_error(some: Iterable[Log], least: float, below: float) -> tuple[float, float, int]:
    """(Median, 90th percentile, number) of absolute errors of all sizes of *some* logs."""
    errors = sorted(abs(e) for log in some for e in log.errors(least, below))
    if not errors:
        return 0.0, 0.0, 0
    return statistics.median(errors), errors[int(0.9 * (len(errors) - 1))], len(errors)


def summary() -> str:
    """A line per place and half: median, 90th percentile and number of rows of every class of sizes."""
    lines = []
    for where, far in (("in a node", False), ("across nodes", True)):
        for half in ("fit", "score"):
            some = [log for log in logs() if log.clean and log.far is far and log.said["half"] == half]
            cells = [
                f"{name} {m:.1%} / {p:.0%} ({n})" for name, s in SIZES.items() for m, p, n in [median_error(some, *s)]
            ]
            lines.append(f"{where:13}{half:6} " + ", ".join(cells))
    return "\n".join(lines)


def by_log() -> str:
    """A line per log: the median error of every class of sizes."""
    lines = []
    for log in logs():
        cells = [f"{statistics.median(e):+7.1%}" if (e := log.errors(*s)) else " " * 7 for s in SIZES.values()]
        half = log.said["half"] if log.clean else "-"
        lines.append(f"{half:6}{log.name:60.60} {log.said['algorithm']:5}" + "".join(cells))
    return "\n".join(lines)


def calibrated_errors(least: float = MIB) -> dict[str, list[float]]:
    """By name of a clean log, the absolute errors of every other size from *least* bytes on, its machine fitted to the
    sizes between them."""
    out = {}
    for log in logs():
        if log.clean and len(log.seconds) >= 10:
            sizes = sorted(log.seconds)
            known, left = sizes[::2], [n for n in sizes[1::2] if n >= least]
            fitted = _fitted(log, known)
            out[log.name] = [abs(fitted.predicted(n) / log.seconds[n] - 1) for n in left]
    return out


def _fitted(log: Log, sizes: list[int]) -> Log:
    """*log* with its machine calibrated to some *sizes*."""
    sweep = CollectiveSweep(
        operation=log.said["operation"],
        ranks=len(log.ranks),
        nodes=log.said["nodes"],
        nbytes=tuple(map(float, sizes)),
        seconds=tuple(log.seconds[n] for n in sizes),
        file=log.name,
        algorithm=log.said["algorithm"],
        one_launcher=log.said.get("processes") == 1,
    )
    machine = dict(log.said["machine"])
    topology = machine.pop("topology")
    own = {"base": topology} if isinstance(topology, str) else dict(topology)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "machine.yaml"
        file.write_text(yaml.safe_dump({**own, **machine, "source": "a log"}), encoding="utf-8")
        found = calibrated(Measurements(sweeps=(sweep,)), Bases(topology=str(file)))
        override = yaml.safe_load(found.to_yaml("topology"))
        return _on(log, override if "topology" in found.documents else log.said["machine"]["topology"])


def _on(log: Log, topology: Any) -> Log:
    """*log* on another machine, which is read at once, as its file may be gone."""
    moved = replace(log, said={**log.said, "machine": {**log.said["machine"], "topology": topology}})
    moved.cluster  # noqa: B018
    return moved


def write() -> None:
    """Make docs/collectives.md anew."""
    from benchmarks.accuracy_page import replaced
    from benchmarks.collectives_page import picture, table

    page = DATA.parents[2] / "docs" / "collectives.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), {"errors": table()}), encoding="utf-8")
    picture().savefig(page.parent / "images" / "collectives.png", dpi=90)


if __name__ == "__main__":
    if "--logs" in sys.argv[1:]:
        print(by_log())
    print(summary())
    if "--calibrated" in sys.argv[1:]:
        found = calibrated_errors()
        for name, errors in found.items():
            print(f"{name:70} {statistics.median(errors):6.1%} {max(errors):6.0%} ({len(errors)})")
        every = [e for errors in found.values() for e in errors]
        print(f"calibrated: {statistics.median(every):.1%} of {len(every)} sizes that were not fitted")
    if "--write" in sys.argv[1:]:
        write()
