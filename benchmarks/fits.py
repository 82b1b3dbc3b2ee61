"""
What whole runs say of constants that kernels alone do not decide: fitted on all sources, and on all but each.

    python -m benchmarks.fits [--write] [--each N]

Replays a sample of the published runs (N of each model, GPU and precision of a source) once as they are and once with
each constant a little larger, which takes some minutes. Prints the factors by which published steps would have the
constants changed; ``--write`` puts what they would be without each source into trainsim/validation/left_out.yaml.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trainsim.hardware.cluster import load_topology
from trainsim.hardware.gpu import load_gpu
from trainsim.hardware.kernel_constants import load_kernels
from trainsim.scenario.scenario import Scenario
from trainsim.study.runner import Runner
from trainsim.study.trial import Trial
from trainsim.validation.fitting import STEP, Sensitivities, equal_weights, fitted, left, sensitivities
from trainsim.validation.mapping import scenario_of
from trainsim.validation.published import PublishedRun, read_runs

FILE = Path(__file__).parents[1] / "trainsim" / "validation" / "left_out.yaml"
SETS = ("ampere", "hopper", "blackwell", "blackwell-ultra", "volta")
PATHS = (
    "run.gemm",
    "run.attention",
    "run.memory_bound",
    "gemm.speedup.fp8",
    "gemm.speedup.mxfp8",
    "gemm.speedup.nvfp4",
)
SAME = 0.002
"""Changes of a constant by less are not written."""


class Sampled(NamedTuple):
    """A published run, its scenario and the set of kernel constants of its GPU."""

    run: PublishedRun
    scenario: Mapping[str, Any]
    kernels: str


def main() -> None:
    """Replay, fit, print, and write where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fits", description="Constants that steps decide.")
    parser.add_argument("--write", action="store_true", help=f"write what follows into {FILE.name}")
    parser.add_argument("--each", type=int, default=2, help="runs of each model, GPU and precision of a source")
    options = parser.parse_args()
    sample = list(sampled(options.each))
    given = measured(sample)
    whole = fitted(given)
    print(f"{len(given.errors)} runs; factors that published steps ask for")
    sources = tuple(dict.fromkeys(given.sources))
    without = {source: fitted(given.without(source)) for source in sources}
    for constant, factor in whole.items():
        others = [of[constant] for of in without.values()]
        print(f"{constant:36} {factor:6.3f}   leaving one source out {min(others):.3f} to {max(others):.3f}")
    _tell(given, whole, without)
    if options.write:
        used = {(one.run.source, one.kernels) for one in sample}
        FILE.write_text(written(FILE.read_text(encoding="utf-8"), without, used), encoding="utf-8")


def sampled(each: int) -> Iterator[Sampled]:
    """Up to *each* runs of every model, GPU and precision of a source, spread over its rows."""
    groups: dict[tuple[str, ...], list[PublishedRun]] = {}
    for run in read_runs():
        if run.step_time:
            key = (run.source, run.text("model_name"), run.text("gpu"), run.text("precision"))
            groups.setdefault(key, []).append(run)
    for runs in groups.values():
        for run in runs[:: max(1, -(-len(runs) // each))]:
            scenario = scenario_of(run).scenario
            kernels = load_gpu(gpu_of(scenario)).kernels.name
            if kernels in SETS:
                yield Sampled(run, scenario, kernels)


def gpu_of(scenario: Mapping[str, Any]) -> str:
    """The GPU of a scenario, by name."""
    cluster = scenario["cluster"]
    return str(cluster.get("gpu") or load_topology(cluster["topology"], nodes=1).gpu.name)


def measured(sample: list[Sampled]) -> Sensitivities:
    """What all runs of the sample take as they are, and with each constant of their GPU ``STEP`` times as large."""
    runner = Runner(keep=lambda result: result.step_time)
    names = [f"{kernels} {path}" for kernels in SETS for path in PATHS if _has(kernels, path)]
    trials, which = [], []
    for one in sample:
        trials.append(Trial(base=Scenario.from_dict(dict(one.scenario))))
        which.append((one.run.id, ""))
        for path in PATHS:
            if f"{one.kernels} {path}" in names and _matters(path, one.run):
                trials.append(Trial(base=Scenario.from_dict(changed(one.scenario, one.kernels, path, STEP))))
                which.append((one.run.id, f"{one.kernels} {path}"))
    found = {key: outcome.value for key, outcome in zip(which, runner.run(trials, "fits"), strict=True)}
    base = {run: value for (run, constant), value in found.items() if not constant and value}
    runs = {one.run.id: one.run for one in sample}
    keys = [(runs[r].source, runs[r].text("model_name"), runs[r].text("gpu")) for r in base]
    return sensitivities(
        base,
        {name: {run: found.get((run, name)) or base[run] for run in base} for name in names},
        published={run: float(runs[run].step_time or 0.0) for run in base},
        sources={run: runs[run].source for run in base},
        weights=dict(zip(base, equal_weights(keys), strict=True)),
    )


def changed(scenario: Mapping[str, Any], kernels: str, path: str, factor: float) -> dict[str, Any]:
    """*scenario* with a constant of its GPU's kernels *factor* times as large."""
    section, _, key = path.partition(".")
    value = factor * _value(kernels, path)
    inner = {key: value} if "." not in key else {key.partition(".")[0]: {key.partition(".")[2]: value}}
    gpu = {"base": gpu_of(scenario), "kernels": {"base": kernels, section: inner}}
    return {**scenario, "cluster": {**scenario["cluster"], "gpu": gpu}}


def _value(kernels: str, path: str) -> float:
    at: Any = load_kernels(kernels)
    for name in path.split("."):
        at = at[name] if isinstance(at, Mapping) else getattr(at, name)
    return float(at)


def _has(kernels: str, path: str) -> bool:
    try:
        return _value(kernels, path) > 0
    except (KeyError, AttributeError):
        return False


def _matters(path: str, run: PublishedRun) -> bool:
    """Whether the constant is of the precision in which the run computed, or of all."""
    return "speedup" not in path or path.rpartition(".")[2] == run.text("precision")


def _tell(given: Sensitivities, whole: Mapping[str, float], without: Mapping[str, Mapping[str, float]]) -> None:
    """Medians of each source: as it is, with the fit, and with the fit without it."""
    import numpy as np

    sources = np.array(given.sources)
    as_is, fit = np.exp(given.errors) - 1.0, left(given, whole)
    print("source: as it is, fitted on all, fitted without it (median of sizes / bias)")
    for source, factors in without.items():
        of, out = sources == source, left(given, factors)
        parts = [f"{np.median(abs(e[of])):6.1%} {np.median(e[of]):+6.1%}" for e in (as_is, fit, out)]
        print(f"{source:8} {'   '.join(parts)}")


def written(text: str, without: Mapping[str, Mapping[str, float]], used: Set[tuple[str, str]]) -> str:
    """left_out.yaml with the constants that each source's absence leaves, of the sets that its own runs *used*."""
    kernels: dict[str, Any] = {}
    for source, factors in without.items():
        for constant, factor in factors.items():
            name, _, path = constant.partition(" ")
            if (source, name) in used and abs(factor - 1.0) >= SAME and not path.startswith("gemm.speedup"):
                section, _, key = path.partition(".")
                at = kernels.setdefault(source, {}).setdefault(name, {}).setdefault(section, {})
                at[key] = round(factor * _value(name, path), 3)
    head, _, _ = text.partition("kernels:")
    body = yaml.safe_dump({"kernels": kernels}, default_flow_style=None, width=120, sort_keys=False)
    return head + body


if __name__ == "__main__":
    main()
