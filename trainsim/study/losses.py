"""Where the time goes that the mean rank does not compute: each cause taken away, and the step run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainsim.contracts.job import Jitter, Skip
from trainsim.contracts.system import System
from trainsim.program.lower import lower
from trainsim.simulate import Simulation
from trainsim.study.counterfactual import Change, balanced, seconds, without_collectives, without_messages, work

CAUSES: Mapping[str, Change] = {
    "imbalance": balanced,
    "messages": without_messages,
    "communication": without_collectives,
}
"""What can be taken away, and how."""

WORDS = {
    "imbalance": "stages slower than average",
    "messages": "messages between stages",
    "communication": "collectives of layers and of gradients, offload",
    "stragglers": "slow or delayed (what_if), or drawn as such (jitter)",
    "schedule": "pipeline fill and drain",
    "interaction": "combined effects of these",
}
"""Each cause for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """A step (seconds) as the work of the mean rank and what is lost: ``causes`` sum to ``lost``.

    A cause is what the step would be shorter if it alone were taken away; ``schedule`` is what is left without any of
    them. Where two causes hide each other, or need each other, ``interaction`` is positive or negative.
    """

    step: float
    work: float
    causes: dict[str, float]

    @property
    def lost(self) -> float:
        return self.step - self.work

    def to_dict(self) -> dict[str, float | dict[str, float]]:
        """Plain data; seconds."""
        return {"step_time_s": self.step, "work_s": self.work, "lost_s": self.lost, "causes_s": dict(self.causes)}


def losses(simulation: Simulation, advance: Callable[[], None] = lambda: None) -> Losses:
    """What the step of *simulation* loses to each cause, by running it without; *advance* is called after each run."""
    job, whole = simulation.job, simulation.trace.duration
    skips = tuple(w for w in job.what_if if isinstance(w, Skip))
    slowed = len(skips) < len(job.what_if) or job.jitter.any
    typical = Jitter(gpu=None if job.jitter.gpu is None else 0.0)
    pure = lower(replace(job, what_if=skips, jitter=typical)).system if slowed else simulation.plan.system

    def step(system: System) -> float:
        took = seconds(system, whole) / job.steps
        advance()
        return took

    now = whole / job.steps
    saved = {cause: now - step(change(simulation.plan.system)) for cause, change in CAUSES.items()}
    if slowed:
        saved["stragglers"] = now - step(pure)
    bare = pure
    for change in CAUSES.values():
        bare = change(bare)
    least, mean = step(bare), work(pure) / job.steps
    causes = {**saved, "schedule": least - mean}
    return Losses(step=now, work=mean, causes={**causes, "interaction": (now - mean) - sum(causes.values())})


RUNS = len(CAUSES) + 2
"""How often ``losses`` runs at most."""
