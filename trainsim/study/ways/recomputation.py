"""More or fewer activations computed again instead of kept."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way

MODES = ("none", "selective", "full")
"""What is computed again, from nothing to everything."""


@way("more recomputation", MEMORY)
def more_recomputation(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Selective and full recomputation, also of every second layer; of all layers where it was of some."""
    now = job.training
    more = MODES[MODES.index(now.recompute) + 1 :]
    if now.recompute == "none":
        every = {"training.recompute.mode": "full", "training.recompute.every": 2}
        yield Change(kind="recompute", title="full recompute of every 2nd layer", values=every)
    yield from map(_recompute, more or (("full",) if now.recompute_layers or now.recompute_every > 1 else ()))


@way("less recomputation", TIME)
def less_recomputation(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Selective and no recomputation, where there is more."""
    yield from map(_recompute, MODES[: MODES.index(job.training.recompute)])


def _recompute(mode: str) -> Change:
    title = "no recompute" if mode == "none" else f"{mode} recompute"
    return Change(kind="recompute", title=title, values={"training.recompute": mode})
