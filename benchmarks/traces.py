"""How long traces take to write and how large they are, by the number of their spans: ``python -m benchmarks.traces``.

Jobs of one model with more and more microbatches; processor time of the whole write, compression included, and bytes
packed. The first write of each kind is left out: it reads the names of kernels.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import trainsim as ts
from trainsim.report.chrome import span_count
from trainsim.result.result import Result

SIZES = (10_000, 100_000, 1_000_000)
"""Spans of all ranks of a pipeline, about."""


class Written(NamedTuple):
    """One way to write a run: spans, seconds of processor time, bytes on the disk."""

    what: str
    spans: int
    seconds: float
    nbytes: int

    def __str__(self) -> str:
        each = f"{self.seconds / self.spans * 1e6:.1f} | {self.nbytes / self.spans:.0f}"
        return f"| {self.what} | {self.spans:,} | {self.seconds:.2f} | {each} |"


def runs() -> Iterator[Result]:
    """A run for each of SIZES."""
    base = ts.Scenario.load("quickstart").replace({"training.global_batch": 4})
    small, more = (spans(base.replace({"training.global_batch": batch}).run()) for batch in (4, 8))
    for size in SIZES:
        batches = max(1, round((size - small) / (more - small)) + 1)
        yield base.replace({"training.global_batch": 4 * batches}).run()


def spans(run: Result) -> int:
    """Spans of a pipeline of a run."""
    return sum(span_count(run.trace, rank) for rank in run.pipeline)


def written(run: Result, folder: Path) -> Iterator[Written]:
    """Each kind of trace of a run."""
    ways: dict[str, Callable[[], object]] = {
        "trace.json.gz": lambda: run.to_chrome(folder / "trace.json.gz", ranks=run.pipeline),
        "traces/rank-*.json.gz": lambda: run.to_kineto(folder / "traces"),
    }
    for what, write in ways.items():
        began = time.process_time()
        write()
        seconds = time.process_time() - began
        yield Written(what, spans(run), seconds, sum(path.stat().st_size for path in sorted(folder.glob(what))))


def main() -> None:
    """Print the table of docs/traces.md."""
    print("| file | spans | seconds | us per span | bytes per span |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for k, run in enumerate(runs()):
            if not k:
                list(written(run, folder))
            for row in written(run, folder):
                print(row, flush=True)


if __name__ == "__main__":
    main()
