"""
What special things cost in the engine: time of a job with one of them in ratio to the same job without it.

    python -m benchmarks.cliffs [WORD ...]

Both jobs run by turns; times are medians of user CPU. WORD picks the cases whose names have it in them.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

Changes = Mapping[str, Any]
LIMIT, REPEAT = 3.0, 5
"""The most that a special thing may cost, times its plain job; pairs of runs."""
LONG = 1.0
"""Seconds of a pair from which on one of them is enough."""
BASE: Changes = {
    "name": "cliff", "model": "llama-2-70b", "framework.base": "neutral",
    "framework.communication": {"tp_overlap": "none"}, "cluster.topology": "dgx_h100", "cluster.nodes": 16,
    "parallel.tp": 8, "parallel.pp": 8, "parallel.sequence_parallel": True, "training.sequence_length": 4096,
    "training.micro_batch": 1, "training.global_batch": 256, "sharding.strategy": "zero1", "sharding.overlap": True,
}  # fmt: skip
"""Llama-2-70B on 128 GPUs, 128 micro-batches of a pipeline of 8 stages, reductions under the backward passes."""
WGRAD = {"framework.communication": {"tp_overlap": "wgrad"}}
SLOW = {"what_if": [{"slow": {"rank": 5, "factor": 1.1}}]}
LOOPED = {"pipeline": {"schedule": "interleaved-1f1b", "chunks": 2}}
INSIDE = {"parallel.tp": 2, "parallel.pp": 4}
ZERO2 = {"parallel.pp": 1, "sharding.strategy": "zero2"}
ZERO3 = {"parallel.tp": 1, "parallel.pp": 1, "sharding.strategy": "zero3", "training.global_batch": 512}
CPU = {"optimizer": "cpu"}
BLOCK = {"simulation.detail": "block"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """A job with something special and the same without it, as changes of BASE; ``per_class``: times are divided by the
    number of classes of ranks that are simulated."""

    name: str
    special: Changes
    plain: Changes = field(default_factory=dict)
    limit: float = LIMIT
    per_class: bool = False


CLIFFS = (
    Cliff(name="TP overlap (wgrad)", special=WGRAD),
    Cliff(name="interleaved, TP overlap", special={**LOOPED, **WGRAD}, plain=LOOPED),
    Cliff(name="dualpipe against 1f1b", special={"pipeline": {"schedule": "dualpipe"}}),
    Cliff(name="dualpipev against 1f1b", special={"pipeline": {"schedule": "dualpipev"}}),
    Cliff(
        name="messages within a node against those between nodes of two GPUs",
        special=INSIDE,
        plain={**INSIDE, "cluster.nodes": 64, "cluster.gpus_per_node": 2},
    ),
    Cliff(name="messages within a node, TP overlap", special={**INSIDE, **WGRAD}, plain=INSIDE),
    Cliff(name="DP overlap", special={}, plain={"sharding.overlap": False}),
    Cliff(name="DP overlap, a straggler, per class", special=SLOW, per_class=True),
    Cliff(name="TP overlap, a straggler, per class", special={**WGRAD, **SLOW}, per_class=True),
    Cliff(name="ZeRO-2, overlap", special=ZERO2, plain={**ZERO2, "sharding.overlap": False}),
    Cliff(name="ZeRO-3, overlap", special=ZERO3, plain={**ZERO3, "sharding.overlap": False}),
    Cliff(
        name="ZeRO-3 against ZeRO-2, both with overlap", special=ZERO3, plain={**ZERO3, "sharding.strategy": "zero2"}
    ),
    Cliff(name="ZeRO-2, optimizer offloaded", special={**ZERO2, "sharding.offload": CPU}, plain=ZERO2),
    Cliff(
        name="ZeRO-3, optimizer and parameters offloaded",
        special={**ZERO3, "sharding.offload": {**CPU, "parameters": "cpu"}},
        plain=ZERO3,
    ),
    Cliff(
        name="10,000 micro-batches against 500",
        special={"training.global_batch": 20_000},
        plain={"training.global_batch": 1_000},
        limit=1.5,
    ),
    Cliff(name="TP overlap, detail block against op", special={**WGRAD, **BLOCK}, plain=WGRAD, limit=0.25),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A cliff as measured: seconds of both jobs (per class if the case says so), and their ratio."""

    name: str
    special: float
    plain: float
    limit: float

    @property
    def ratio(self) -> float:
        """How many times as long the special job takes."""
        return self.special / self.plain


def measure(cliff: Cliff) -> Found:
    """Both jobs by turns, after one run of each that is not counted."""
    from trainsim.scenario.scenario import Scenario

    base = Scenario.from_dict(nested(BASE))
    jobs = [base.replace(changes).resolve() for changes in (cliff.special, cliff.plain)]
    seconds: list[list[float]] = [[], []]
    classes = [1, 1]
    for turn in range(REPEAT + 1):
        for k, job in enumerate(jobs):
            took, found = engine(job)
            classes[k] = found if cliff.per_class else 1
            seconds[k].append(took / classes[k])
        if turn and seconds[0][-1] * classes[0] + seconds[1][-1] * classes[1] > LONG:
            break
    special, plain = (statistics.median(some[1:]) for some in seconds)
    return Found(name=cliff.name, special=special, plain=plain, limit=cliff.limit)


def engine(job: Any) -> tuple[float, int]:
    """Seconds of user CPU of the engine, and how many classes of ranks it runs."""
    from trainsim.simulate import simulate

    began = 0.0

    def said(phase: str) -> None:
        nonlocal began
        if phase == "simulating":
            gc.collect()
            began = _used()

    done = simulate(job, said)
    return _used() - began, done.trace.classes


def _used() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def nested(flat: Changes) -> dict[str, Any]:
    """A scenario from values at dotted paths.

    >>> nested({"a.b": 1, "a.c": 2, "d": 3})
    {'a': {'b': 1, 'c': 2}, 'd': 3}
    """
    out: dict[str, Any] = {}
    for path, value in flat.items():
        *outer, last = path.split(".")
        place = out
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = value
    return out


def table(found: Sequence[Found]) -> list[str]:
    """A line per cliff, in Markdown."""
    lines = ["| special thing | plain | special | ratio | limit | |", "|---|--:|--:|--:|--:|---|"]
    for one in found:
        numbers = f"{1e3 * one.plain:.1f} ms | {1e3 * one.special:.1f} ms | {one.ratio:.2f} | ≤ {one.limit:g}"
        verdict = "met" if one.ratio <= one.limit else f"missed by {one.ratio / one.limit - 1:.0%}"
        lines.append(f"| {one.name} | {numbers} | {verdict} |")
    return lines


def apart(words: Sequence[str] = ()) -> Iterator[Found]:
    """All cliffs, measured in a process of their own."""
    command = [sys.executable, "-m", "benchmarks.cliffs", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            yield Found(**json.loads(line))
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}")


def main() -> None:
    """Measure and print, a case at a time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cliffs", description=(__doc__ or "").splitlines()[1])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--json", action="store_true", help="an object per line")
    options = parser.parse_args()
    for cliff in CLIFFS:
        if not options.words or any(word in cliff.name for word in options.words):
            found = measure(cliff)
            print(json.dumps(asdict(found)) if options.json else table([found])[-1], flush=True)


if __name__ == "__main__":
    main()
