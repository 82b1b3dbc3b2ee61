"""
Times of kernels alone that public sources measured, beside what ``kernel_time`` says. Takes a second.

    python -m benchmarks.kernels [--all] [--write] [FILE]

Prints the error of each kind of kernel on each GPU; ``--all`` prints every kernel, ``--write`` makes the table that
ships with the package (``trainsim/costs/errors.yaml``). A line of FILE (``tests/data/measured_kernels.csv``) is a
kernel: its GPU, kind, type and the arguments of ``kernel_time``, and its microseconds.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from trainsim.costs.errors import KernelError
from trainsim.costs.kernels import kernel_time
from trainsim.documents.document import value_of
from trainsim.hardware.gpu import load_gpu

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "measured_kernels.csv"
TABLE = ROOT / "trainsim" / "costs" / "errors.yaml"
HEAD = """\
# Errors of kernels alone, by GPU and kind of kernel: measurements, median and 90th percentile of the errors' size, and
# their median with its sign (below 0: too fast), as parts of one. Made by `python -m benchmarks.kernels --write` from
# tests/data/measured_kernels.csv.
"""


class Measured(NamedTuple):
    """One published time of a kernel."""

    source: str
    gpu: str
    what: str
    dtype: str
    call: str
    seconds: float

    @property
    def error(self) -> float:
        """Of the prediction, as a part of what was measured."""
        return predicted(self.gpu, self.dtype, self.call) / self.seconds - 1


gpu_called = cache(load_gpu)


@cache
def predicted(gpu: str, dtype: str, call: str) -> float:
    """Seconds of a kernel; forward and backward of attention together where both were measured together."""
    shape = {key: value_of(value) for key, _, value in (word.partition("=") for word in call.split())}
    if shape.get("direction") == "both":
        return sum(predicted(gpu, dtype, call.replace("=both", f"={way}")) for way in ("forward", "backward"))
    kind = "memory_bound" if "nbytes" in shape else "attention" if "heads" in shape else "gemm"
    return kernel_time(gpu_called(gpu), kind, dtype=dtype, **shape)


def measurements(file: Path = DATA) -> list[Measured]:
    """The lines of *file*, by GPU and kind of kernel."""
    rows = csv.DictReader(line for line in file.read_text().splitlines() if not line.startswith("#"))
    found = (
        Measured(r["source"], r["gpu"], r["what"], r["dtype"], r["call"], float(r["microseconds"]) * 1e-6) for r in rows
    )
    return sorted(found, key=lambda m: (m.gpu, m.what))


def scores(rows: Iterable[Measured]) -> list[KernelError]:
    """Errors of *rows* by GPU and kind of kernel; they come in that order."""
    return [score(what, gpu, list(group)) for (gpu, what), group in groupby(rows, key=lambda m: (m.gpu, m.what))]


def score(what: str, gpu: str, rows: Sequence[Measured]) -> KernelError:
    """Of *rows* as one."""
    errors = [row.error for row in rows]
    sizes = sorted(map(abs, errors))
    p90 = quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else sizes[0]
    sources = sorted({"/".join(row.source.split()[0].split("/")[:2]) for row in rows})
    middle, worst, bias = (round(value, 3) for value in (median(sizes), p90, median(errors)))
    return KernelError(what, gpu, len(rows), middle, worst, bias, ", ".join(sources))


def text_of(table: Sequence[KernelError]) -> str:
    """The file that ships with the package."""
    lines = [HEAD]
    for gpu, group in groupby(table, key=lambda e: e.gpu):
        lines.append(f"{gpu}:\n")
        for e in group:
            numbers = f"measured: {e.measured}, median: {e.median}, p90: {e.p90}, bias: {e.bias}"
            lines.append(f'  {e.what}: {{{numbers}, source: "{e.source}"}}\n')
    return "".join(lines)


def main() -> None:
    """Score, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description="Errors of kernels alone.")
    parser.add_argument("--all", action="store_true", help="every kernel")
    parser.add_argument("--write", action="store_true", help=f"make {TABLE.relative_to(ROOT)}")
    parser.add_argument("file", nargs="?", type=Path, default=DATA, help="measurements in the form of the default")
    given = parser.parse_args()
    rows = measurements(given.file)
    for row in rows if given.all else ():
        print(f"{row.gpu:16} {row.seconds * 1e6:10.1f} us {row.error:+7.1%}  {row.what}: {row.call}")
    table = scores(rows)
    for e in table:
        print(f"{e.gpu:16} {e.what:40} {e.measured:4} median {e.median:6.1%}  p90 {e.p90:6.1%}  bias {e.bias:+6.1%}")
    if given.write:
        TABLE.write_text(text_of(table))


if __name__ == "__main__":
    main()
