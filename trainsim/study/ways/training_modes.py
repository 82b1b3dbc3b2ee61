"""Fewer logits and gradients at once, and states that may leave the GPU, as PyTorch's users have them."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, way

OPEN = ("pytorch", "any")
"""Families of frameworks in which a training loop chooses its own loss and hooks."""
PAGED = {"adam": "paged-adam", "adamw": "paged-adam", "adam8bit": "paged-adam8bit", "lion": "paged-lion"}


@way("fewer logits at once", MEMORY)
def chunked_loss(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Head and loss in chunks, or fused with their gradients."""
    if job.training.cross_entropy == "standard" and job.framework.family in OPEN:
        for kind in ("chunked", "fused_linear"):
            title = f"{kind.replace('_', ' ')} cross entropy"
            yield Change(kind="loss", title=title, values={"training.cross_entropy": kind})


@way("optimizer in backward", MEMORY)
def early_updates(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Gradients that are used and dropped one by one, where there is one micro-batch of them."""
    training = job.training
    if training.microbatches == 1 and not training.optimizer_in_backward and job.framework.family in OPEN:
        values = {"training.optimizer_in_backward": True}
        yield Change(kind="update", title="optimizer in backward", values=values)


@way("paged optimizer", MEMORY)
def paged_states(scenario: Scenario, job: Job) -> Iterator[Change]:
    """The same optimizer with states in unified memory."""
    name = PAGED.get(job.training.optimizer.name)
    if name and job.framework.family in OPEN:
        yield Change(kind="optimizer", title=f"{name} optimizer", values={"training.optimizer": name})
