"""Commands as a user runs them: a fresh process each, timed from outside by the operating system."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkouts import HERE

BYTE_CODE = Path(tempfile.gettempdir()) / "trainsim-benchmarks"
"""Where Python keeps its byte code meanwhile."""
_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss: bytes there, KiB on Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process and those that it started took: real time, processor time and the part of it outside of the
    system, seconds; most memory, bytes."""

    wall: float
    cpu: float
    user: float
    memory: float


def used(command: Sequence[str], *, package: Path = HERE) -> Usage:
    """Run *command* with the program of the checkout *package* and wait for it. Raises RuntimeError with its last words
    if it fails.

    Its memory is at least what this process holds when it starts it, so nothing large is imported here. Python keeps
    byte code, as it does for users.
    """
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONPYCACHEPREFIX": str(BYTE_CODE)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile("w+") as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}\n{said.read()[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Usage(wall=wall, cpu=cpu, user=usage.ru_utime, memory=usage.ru_maxrss * _UNIT)


def typical(command: Sequence[str], repeat: int) -> Usage:
    """Medians of *repeat* runs, after one that warms the file cache and is not counted."""
    used(command)
    runs = [used(command) for _ in range(repeat)]
    return Usage(
        wall=statistics.median(run.wall for run in runs),
        cpu=statistics.median(run.cpu for run in runs),
        user=statistics.median(run.user for run in runs),
        memory=statistics.median(run.memory for run in runs),
    )
