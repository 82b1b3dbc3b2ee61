"""
What each piece of the model is worth on sources that are left out: the same runs without it. Takes some minutes.

    python -m benchmarks.ablation [--each N] [--write]

Prints the median of the sources' median errors, and which sources a piece helps and hurts most; ``--write`` puts the
table into docs/accuracy.md. N is the number of runs of each model, GPU and precision of a source.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from statistics import mean, median
from typing import Any

from benchmarks.accuracy import PAGE
from benchmarks.accuracy_page import replaced
from benchmarks.fits import Sampled, gpu_of, sampled
from trainsim.scenario.scenario import Scenario
from trainsim.study.runner import Runner
from trainsim.study.trial import Trial
from trainsim.validation.left_out import without

Change = Callable[[dict[str, Any], Sampled], dict[str, Any]]
FUSED = dict.fromkeys(("norm", "rotary", "activation", "residual", "bias", "inputs"), True)
NO_HOST = {"seconds_per_operation": 0.0, "seconds_per_hook": 0.0, "recompute_seconds": 0.0, "step_seconds": 0.0}
ALONE = dict.fromkeys(("gemm", "attention", "memory_bound"), 1.0)


def _framework(**groups: Mapping[str, Any]) -> Change:
    def change(data: dict[str, Any], one: Sampled) -> dict[str, Any]:
        told = data["framework"]
        own = dict(told) if isinstance(told, Mapping) else {"base": told}
        merged = {group: {**own.get(group, {}), **values} for group, values in groups.items()}
        return data | {"framework": own | merged}

    return change


def _collectives(**constants: object) -> Change:
    def change(data: dict[str, Any], one: Sampled) -> dict[str, Any]:
        told = data["cluster"].get("collectives", {})
        own = {"base": told} if isinstance(told, str) else dict(told)
        return data | {"cluster": {**data["cluster"], "collectives": own | constants}}

    return change


def _kernels(**sections: Mapping[str, Any]) -> Change:
    def change(data: dict[str, Any], one: Sampled) -> dict[str, Any]:
        gpu = {"base": gpu_of(one.scenario), "kernels": {"base": one.kernels, **sections}}
        return data | {"cluster": {**data["cluster"], "gpu": gpu}}

    return change


def _neutral(data: dict[str, Any], one: Sampled) -> dict[str, Any]:
    return data | {"framework": "neutral"}


PIECES: dict[str, Change] = {
    "framework profiles (neutral for every run)": _neutral,
    "unfused kernels": _framework(kernels={"fused": FUSED}),
    "the choice of memory-bound kernels": _framework(kernels={"variants": {"norm": "tuned", "rope": "tuned"}}),
    "host cost of launches": _framework(host=NO_HOST),
    "sustained clocks and overhead of whole steps": _kernels(sustained=ALONE, run=ALONE),
    "cost per ring step": _collectives(chunk_step=0.0, chunk_network_step=0.0),
    "rate limit per group on Omni-Path": _collectives(group_rate="1PB/s"),
    "losses of medium-sized collectives": _collectives(ramp=0.0, ramp_network=0.0),
}


def main() -> None:
    """Replay with and without, print, and write where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description="What each piece is worth.")
    parser.add_argument("--each", type=int, default=1, help="runs of each model, GPU and precision of a source")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    lines = list(table(list(sampled(options.each))))
    print(*lines, sep="\n")
    if options.write:
        text = replaced(PAGE.read_text(encoding="utf-8"), {"ablation": "\n".join(lines)})
        PAGE.write_text(text, encoding="utf-8")


def table(sample: list[Sampled]) -> Iterator[str]:
    """A row per piece: errors without it, beside those of everything."""
    whole = errors(sample, lambda data, one: data)
    yield "| without | median of sources | mean of sources | 90 % of runs below | source that changes most |"
    yield "|---|--:|--:|--:|---|"
    yield _row("nothing", whole, whole)
    for name, change in PIECES.items():
        yield _row(name, errors(sample, change), whole)


def errors(sample: list[Sampled], change: Change) -> dict[str, list[float]]:
    """The errors of each source's runs with a piece changed; those that cannot be run so are left out."""
    runner = Runner(keep=lambda result: result.step_time)
    trials = [Trial(base=Scenario.from_dict(change(without(one.run.source, one.scenario), one))) for one in sample]
    found: dict[str, list[float]] = {}
    for one, outcome in zip(sample, runner.run(trials, "ablation"), strict=True):
        if outcome.value and one.run.step_time:
            found.setdefault(one.run.source, []).append(abs(outcome.value / one.run.step_time - 1.0))
    return found


def _row(name: str, found: Mapping[str, list[float]], whole: Mapping[str, list[float]]) -> str:
    import numpy as np

    medians = {source: median(values) for source, values in found.items()}
    change = {source: value - median(whole[source]) for source, value in medians.items()}
    most = max(change, key=lambda source: abs(change[source]))
    told = f"{most} {change[most] * 100:+.1f}" if abs(change[most]) > 5e-4 else ""
    ninety = float(np.quantile([value for values in found.values() for value in values], 0.9))
    values = list(medians.values())
    return f"| {name} | {median(values):.1%} | {mean(values):.1%} | {ninety:.1%} | {told} |"


if __name__ == "__main__":
    main()
