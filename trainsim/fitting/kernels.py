"""Kernels and optimizers that keep less."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.explain.options import Trial
from trainsim.fitting import ways
from trainsim.job import Job
from trainsim.scenario.scenario import Scenario

FUSED = "flash2"


@ways.register("attention")
def attention(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """A fused kernel, which keeps no scores."""
    if job.training.attention == "eager":
        yield Trial(kind="kernels", title=f"{FUSED} attention", changes={"training.attention": FUSED})


@ways.register("optimizer")
def optimizer(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Adam with moments of one byte."""
    if job.training.optimizer in ("adam", "adamw"):
        yield Trial(kind="optimizer", title="8-bit Adam", changes={"training.optimizer": "adam8bit"})
