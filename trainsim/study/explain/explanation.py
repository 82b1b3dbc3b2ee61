"""``ts.explain``: what pays most, found out by running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.analysis.critical import Cause
from trainsim.contracts.job import Job
from trainsim.errors import TrainsimError
from trainsim.report.progress import bar
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.simulate import simulate
from trainsim.study.explain.alternatives import more_microbatches, other_schedules
from trainsim.study.explain.layers import Slowest, moves, slowest
from trainsim.study.explain.losses import RUNS, Losses, losses
from trainsim.study.explain.options import LAYERS, RESOURCE, Option, Trial
from trainsim.study.explain.resources import RESOURCES, resources
from trainsim.units import format_time

if TYPE_CHECKING:
    from rich.console import RenderableType

WORTH = 0.002
"""A change that saves less than this part of the step is not worth a line."""
FEW = 2
"""Ways to move layers that are worth a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a step loses and what would make it shorter. ``options`` are those that were run, the best first;
    ``refused`` are those that cannot be run, with the reason. Times in seconds, at detail ``block``."""

    name: str
    step: float
    losses: Losses
    slowest: Slowest
    options: tuple[Option, ...]
    refused: dict[str, str]
    critical_path: tuple[Cause, ...]

    @property
    def actions(self) -> tuple[Option, ...]:
        """Changes of the scenario that save something worth mentioning, with the best moves of layers only; those
        that fit in memory first."""
        some = [o for o in self.options if o.kind != RESOURCE and o.saves > WORTH * self.step]
        moves = [o for o in some if o.kind == LAYERS][:FEW]
        return tuple(sorted((o for o in some if o.kind != LAYERS or o in moves), key=lambda option: not option.fits))

    @property
    def resources(self) -> tuple[Option, ...]:
        """What each resource would save if it were twice as fast."""
        return tuple(option for option in self.options if option.kind == RESOURCE)

    def sentence(self, option: Option) -> str:
        """The option in words: who is slow and why, what to do, what it saves.

        A larger batch is compared for as many tokens as a step has now.
        """
        verb = "save" if option.saves >= 0 else "cost"
        ends = f"{verb} {format_time(abs(option.saves))} of {format_time(self.step)}"
        if option.kind == LAYERS:
            return f"{self.slowest}: moving {option.title} would {ends}"
        if option.kind == RESOURCE:
            return f"{option.title} twice as fast would {ends}"
        return f"{option.title} would {ends}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds and bytes."""
        return {
            "name": self.name,
            "step_time_s": self.step,
            "losses": self.losses.to_dict(),
            "slowest_stage": {
                "stage": self.slowest.stage, "excess": self.slowest.excess, "reason": self.slowest.reason,
                "busy_s": list(self.slowest.busy),
            },
            "options": [{**option.to_dict(), "sentence": self.sentence(option)} for option in self.options],
            "refused": dict(self.refused),
            "critical_path": [cause._asdict() for cause in self.critical_path],
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            "; ".join(self.sentence(option) for option in self.actions[:3]) or "no change that was tried saves anything"
        )

    def __rich__(self) -> RenderableType:
        from trainsim.study.explain.text import explanation

        return explanation(self)

    def _repr_html_(self) -> str:
        from trainsim.report.cards import explanation

        return explanation(self)


def explain(scenario: Scenario | str | Path, *, progress: bool | None = None) -> Explanation:
    """What would make a step of *scenario* (or of the file or name) shorter: each change is run at detail ``block``.

    ``progress`` shows a bar on standard error (None: where somebody looks at it). Raises what running it raises.
    """
    base = scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)
    base = base.replace({"simulation.detail": "block"})
    now = base.run()
    slow = slowest(now)
    trials = (*moves(now, slow), *other_schedules(now.job), *more_microbatches(now.job))
    refused: dict[str, str] = {}
    options: list[Option] = []
    fast = resources(now.job)
    with bar("explain", len(trials) + len(fast) + RUNS, progress) as advance:
        lost = losses(now.simulation, advance)
        for name in fast:
            options.append(_faster(now, name))
            advance()
        for trial in trials:
            try:
                options.append(_tried(base, now, trial))
            except TrainsimError as error:
                refused[trial.title] = str(error)
            advance()
    return Explanation(
        name=now.name,
        step=now.step_time,
        losses=lost,
        slowest=slow,
        options=tuple(sorted(options, key=lambda option: -option.saves)),
        refused=refused,
        critical_path=now.critical_path.causes,
    )


def _tried(base: Scenario, now: Result, trial: Trial) -> Option:
    """The option of a changed scenario. A larger batch is compared for the same number of tokens."""
    then = base.replace(trial.changes).run()
    same = now.job.training.global_batch / then.job.training.global_batch
    return _option(now, then, then.step_time * same, trial.kind, trial.title, changes=trial.changes)


def _faster(now: Result, name: str) -> Option:
    """The option of a resource that is twice as fast."""
    resource = RESOURCES[name]
    job: Job = resource.faster(now.job)
    then = Result(simulation=simulate(job))
    share = sum(cause.share for cause in now.critical_path.causes if cause.kind in resource.kinds)
    return _option(now, then, then.step_time, RESOURCE, resource.title, share=share)


def _option(now: Result, then: Result, step: float, kind: str, title: str, **more: Any) -> Option:
    return Option(
        kind=kind, title=title, step=then.step_time, saves=now.step_time - step, memory=then.memory.peak,
        fits=then.memory.fits, **more,
    )  # fmt: skip
