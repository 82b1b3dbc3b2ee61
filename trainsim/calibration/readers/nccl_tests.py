"""
Logs of nccl-tests and rccl-tests, whatever stands around them: prefixes of mpirun, srun and kubectl, lines of
NCCL_DEBUG, several tests in one file, with and without a header.

A line of results is ``size count type [redop] [root] time algbw busbw [wrong] [time algbw busbw [wrong]]``, out of
place and then in place. The form is that of the printf calls in NVIDIA/nccl-tests src/common.cu, in all its versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from trainsim.calibration.measurements import CollectiveSweep, Measurements
from trainsim.calibration.reader import MeasuredText, MeasurementReader, register
from trainsim.calibration.readers.collective_names import ALGORITHMS, NOT_MODELLED, operation_in, operation_of_rates
from trainsim.errors import ScenarioError

TYPES = "u?int(?:8|16|32|64)|float|double|half|bfloat16|fp8_e[45]m[23]|f8e[45]m[23]|char|uchar"
NUMBER = r"(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|N/A|inf|-?nan)"
RESULT = re.compile(
    rf"(?:^|[\s:>\]|])(\d+)\s+\d+\s+(?:{TYPES})(?:\s+(sum|prod|max|min|avg|mulsum|all|none))?((?:\s+-?{NUMBER}){{3,9}})\s*$"
)
RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bPid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s*(.*?)\s*$")
THREADS = re.compile(r"#\s*nThreads?:?\s+(\d+)\s+nGpus:?\s+(\d+)")
UNITS = re.compile(r"#.*\((us|ms|s)\).*\(GB/s\)")
ROOT = re.compile(r"#\s+size\s.*\broot\b")
FORCED = re.compile(r"NCCL_ALGO[=\s:]+([A-Za-z]+)")
NO_MULTICAST = re.compile(r"NCCL_NVLS_ENABLE[=\s:]+0\b")
PER_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
CONSISTENT = 0.1
"""How far the printed rate may be from size over time: what is further off is a damaged line."""
LEGIBLE = 0.5
"""GB/s: rates are printed with two decimals, so that smaller ones say too little."""


@dataclass(frozen=True, slots=True)
class Line:
    """A result: bytes, seconds, and the ratio of both rates where it can be read."""

    nbytes: float
    seconds: float
    ratio: float | None
    reduces: bool


@dataclass(slots=True)
class _TestRun:
    """What has been read of one test."""

    operation: str | None = None
    threads: tuple[int, int] | None = None
    scale: float = PER_UNIT["us"]
    has_root: bool | None = None
    algorithm: str = "auto"
    ranks: dict[int, tuple[str, str, str]] | None = None  # host, process, GPU
    lines: list[Line] | None = None
    damaged: int = 0
    wrong: int = 0


def load(text: MeasuredText) -> Measurements:
    """A sweep for each test in the log. Raises ScenarioError where there is none."""
    tables = list(_tables(text.text.splitlines()))
    damaged = sum(table.damaged for table in tables)
    wrong = sum(table.wrong for table in tables)
    lost = "1 line is damaged and left out" if damaged == 1 else f"{damaged} lines are damaged and left out"
    warnings = [f"{text.shown}: {lost}"] * bool(damaged)
    warnings += [
        f"{text.shown}: #wrong is not 0 in {wrong} of its lines: this machine gets results wrong, and its times "
        "may not be those of a sound one"
    ] * bool(wrong)
    sweeps = []
    for table in tables:
        operation = table.operation or operation_in(text.name) or _by_rates(table)
        if operation in NOT_MODELLED:
            warnings.append(f"{text.shown}: {operation} is not modelled; its results are left out")
        elif operation is None:
            warnings.append(
                f"{text.shown}: the log does not say of which collective it is; call the file "
                "all_gather.log, alltoall.log or the like"
            )
        elif table.lines:
            sweeps.append(_sweep(table, operation, text.shown))
    if not sweeps:
        why = "; ".join(warning.removeprefix(f"{text.shown}: ") for warning in warnings) or "no line of results"
        raise ScenarioError(f"{text.shown}: nothing of this nccl-tests log can be used: {why}")
    return Measurements(
        sweeps=tuple(sweeps), gpus=tuple({s.gpu: None for s in sweeps if s.gpu}), warnings=tuple(warnings)
    )


def sniff(text: MeasuredText) -> float:
    """Sure where a line of results is."""
    lines = text.start.splitlines()
    if any(map(RESULT.search, lines)):
        return 0.9
    return 0.5 if any(THREADS.search(line) or "Out of bounds values" in line for line in lines) else 0.0


def _tables(lines: Iterable[str]) -> Iterator[_TestRun]:
    """The tests of a log, one after another: what stands before results is about them."""
    table = _TestRun()
    for line in lines:
        named = operation_in(line) if "_perf" in line or "Collective test starting" in line else None
        if (named or THREADS.search(line)) and table.lines:
            yield table
            table = _TestRun(algorithm=table.algorithm)
        table.operation = named or table.operation
        if match := RESULT.search(line):
            _add(table, match)
        else:
            _note(table, line)
    if table.lines or table.damaged:
        yield table


def _note(table: _TestRun, line: str) -> None:
    """What a line says of the test that follows."""
    if match := THREADS.search(line):
        table.threads, table.ranks = (int(match[1]), int(match[2])), {}
    elif match := RANK.search(line):
        table.ranks = (table.ranks or {}) | {int(match[1]): (match[3], match[2], match[5])}
    elif match := UNITS.search(line):
        table.scale = PER_UNIT[match[1]]
    elif ROOT.search(line):
        table.has_root = True
    if match := FORCED.search(line):
        table.algorithm = ALGORITHMS.get(match[1].lower(), "auto")
    elif NO_MULTICAST.search(line) and table.algorithm == "auto":
        table.algorithm = "ring"


def _add(table: _TestRun, match: re.Match[str]) -> None:
    nbytes, numbers = float(match[1]), [_number(word) for word in match[3].split()]
    if len(numbers) in (5, 7, 9) or (table.has_root and len(numbers) % 2):
        numbers = numbers[1:]  # the root
    times = [numbers[k : k + 3] for k in (0, len(numbers) // 2) if k == 0 or len(numbers) >= 6]
    halves = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    table.wrong += any(half[3] for half in (halves if len(numbers) == 8 else [numbers]) if len(half) == 4)
    for seconds, algbw, busbw in (half for half in times if len(half) == 3):
        if nbytes <= 0 or not seconds:
            continue
        seconds *= table.scale
        table.lines = table.lines or []
        if algbw and algbw > LEGIBLE and abs(nbytes / seconds / (algbw * 1e9) - 1) > CONSISTENT:
            table.damaged += 1
            return
        ratio = busbw / algbw if algbw and busbw and algbw > LEGIBLE else None
        table.lines.append(Line(nbytes, seconds, ratio, match[2] not in (None, "none")))
        return


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


def _by_rates(table: _TestRun) -> str | None:
    """The collective as the ratio of both rates tells it, where only one has that ratio."""
    ratios = [line.ratio for line in table.lines or () if line.ratio]
    if not ratios:
        return None
    ranks = len(table.ranks or {})
    return operation_of_rates(ratios[-1], ranks, reduces=any(line.reduces for line in table.lines or ()))


def _sweep(table: _TestRun, operation: str, file: str) -> CollectiveSweep:
    lines, ranks = table.lines or [], table.ranks or {}
    hosts = {host for host, _, _ in ranks.values()}
    processes = {(host, process) for host, process, _ in ranks.values()}
    threads, gpus = table.threads or (1, 1)
    count = len(ranks)
    if not count and operation == "all_reduce":
        count = ranks_of([line.ratio for line in lines if line.ratio])
    gpu = next((name for _, _, name in ranks.values()), "")
    sweep = CollectiveSweep(
        operation=operation,
        ranks=count,
        nodes=len(hosts),
        nbytes=tuple(line.nbytes for line in lines),
        seconds=tuple(line.seconds for line in lines),
        file=file,
        gpu=gpu,
        algorithm=table.algorithm,
        one_launcher=gpus > 1 and threads == 1,
    )
    # Processes that all call their host "localhost" are on one; several processes per host launch side by side.
    return replace(sweep, one_launcher=gpus > 1) if processes and len(processes) < count else sweep


def ranks_of(ratios: list[float]) -> int:
    """The ranks of an all-reduce whose bus rate is so many times the rate of its buffer: ``2(n-1)/n``; 0: not known.

    >>> ranks_of([1.75, 1.7501]), ranks_of([1.998])
    (8, 0)
    """
    if not ratios:
        return 0
    middle = sorted(ratios)[len(ratios) // 2]
    ranks = round(2 / (2 - middle)) if 1 <= middle < 2 - 1 / 64 else 0
    return ranks if ranks > 1 and abs(2 * (ranks - 1) / ranks - middle) < 1 / (4 * ranks) / ranks else 0


register(MeasurementReader(name="nccl-tests", title="a log of nccl-tests", sniff=sniff, load=load))
