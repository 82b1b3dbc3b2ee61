"""Activations computed again instead of kept."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways

MORE = {"none": ("selective", "full"), "selective": ("full",)}


@ways.register("recompute")
def recompute(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Selective and full recomputation; of all layers where it was of some."""
    now = job.training
    modes = MORE.get(now.recompute, ("full",) if now.recompute_layers else ())
    for mode in modes:
        yield Trial(kind="recompute", title=f"{mode} recompute", changes={"training.recompute": mode})
