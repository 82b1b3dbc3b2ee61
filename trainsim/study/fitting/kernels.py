"""Kernels and optimizers that keep less."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways

FUSED = "flash2"


@ways.register("attention")
def attention(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """A fused kernel, which keeps no scores."""
    if job.training.attention == "eager":
        yield Trial(kind="kernels", title=f"{FUSED} attention", changes={"training.attention": FUSED})


@ways.register("optimizer")
def optimizer(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Adam with moments of one byte."""
    if job.training.optimizer.name in ("adam", "adamw"):
        yield Trial(kind="optimizer", title="8-bit Adam", changes={"training.optimizer": "adam8bit"})
