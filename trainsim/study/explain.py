"""``ts.explain``: what pays most, found out by running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.analysis.critical import Cause
from trainsim.report.progress import bar
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.study.faster_parts import PARTS, Faster, parts_of
from trainsim.study.losses import RUNS, Losses, losses
from trainsim.study.moved_layers import LAYERS, Slowest, moves, slowest
from trainsim.study.runner import Runner
from trainsim.study.store import AnswerStore
from trainsim.study.stragglers import Paced, straggler
from trainsim.study.trial import NOT_RUN, Measures, Outcome, Trial, as_scenario, measures
from trainsim.study.ways import TIME, suggestions
from trainsim.study.ways.batch_size import LARGER_BATCH
from trainsim.units import format_time

if TYPE_CHECKING:
    from rich.console import RenderableType

RESOURCE, A_LITTLE, STRAGGLER = "resource", "sensitivity", "straggler"
"""The kinds of options that are another machine: twice as fast, a little faster, with another slowest GPU."""
MACHINE = (RESOURCE, A_LITTLE, STRAGGLER)
TWICE, LITTLE = 2.0, 1.1
"""How much faster each part of the machine is tried."""
WORTH = 0.002
"""A change that saves less than this part of the step is not worth a line."""
FEW = 2
"""Ways to move layers that are worth a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One change and what came out of running it, ``then``. ``saves`` is how much shorter the step is, for the same
    number of tokens (seconds; negative: longer), ``changes`` what to change in the scenario (path -> value; empty
    where it is the machine that would change), ``command`` the same for the command line, ``share`` the part of the
    critical path that a faster machine touches, or None. ``factor`` is how much faster a part of the machine is (below
    1: slower), None where something else changes."""

    kind: str
    title: str
    saves: float
    then: Measures
    changes: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    share: float | None = None
    factor: float | None = None

    @property
    def fits(self) -> bool:
        return self.then.fits

    @property
    def same_training(self) -> bool:
        """Whether a step still trains on as many sequences."""
        return self.kind != LARGER_BATCH

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds and bytes."""
        return {
            "kind": self.kind,
            "title": self.title,
            "step_time_s": self.then.step_time,
            "saves_s": self.saves,
            "memory_peak_bytes": self.then.peak_memory,
            "fits": self.fits,
            "changes": dict(self.changes),
            "critical_path_share": self.share,
            "factor": self.factor,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a step loses and what would make it shorter. ``options`` are those that were run, what saves most first;
    ``refused`` are those that cannot be run, with the reason. Times in seconds, at detail ``block``."""

    name: str
    step: float
    fits: bool
    losses: Losses
    slowest: Slowest
    options: tuple[Saving, ...]
    refused: dict[str, str]
    critical_path: tuple[Cause, ...]
    interrupted: bool = False

    @property
    def actions(self) -> tuple[Saving, ...]:
        """Changes of the scenario that save something worth mentioning, with the best moves of layers only: first what
        fits in memory and trains as now, then larger batches, then what does not fit."""
        worth = [o for o in self.options if o.kind not in MACHINE and o.saves > WORTH * self.step]
        moved = [o for o in worth if o.kind == LAYERS][:FEW]
        kept = [o for o in worth if o.kind != LAYERS or o in moved]
        return tuple(sorted(kept, key=lambda option: (not option.fits, not option.same_training)))

    @property
    def resources(self) -> tuple[Saving, ...]:
        """What each resource would save if it were twice as fast."""
        return tuple(option for option in self.options if option.kind == RESOURCE)

    @property
    def sensitivities(self) -> tuple[Saving, ...]:
        """What the step hangs on, what saves most first: each resource, and the slowest GPU, 10 % faster (or, where all
        are alike, one GPU 10 % slower), and the best move of one layer."""
        little = [option for option in self.options if option.kind in (A_LITTLE, STRAGGLER)]
        moved = [option for option in self.options if option.kind == LAYERS and option.title.startswith("one layer")]
        return tuple(sorted([*little, *moved[:1]], key=lambda option: -option.saves))

    def sentence(self, option: Saving) -> str:
        """The option in words: who is slow and why, what to do, what it saves per token."""
        verb = "save" if option.saves >= 0 else "cost"
        ends = f"{verb} {format_time(abs(option.saves))} of {format_time(self.step)}"
        if not option.same_training:
            ends += " for the same number of tokens"
        if not option.fits:
            ends += " but does not fit in memory"
        if option.kind == LAYERS:
            return f"{self.slowest}: {option.title} would {ends}"
        if option.kind == RESOURCE:
            return f"{option.title} twice as fast would {ends}"
        if option.kind == A_LITTLE or (option.kind == STRAGGLER and (option.factor or 0.0) > 1.0):
            return f"{option.title} 10 % faster would {ends}"
        return f"{option.title} would {ends}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds and bytes."""
        slow = self.slowest
        return {
            "name": self.name,
            "step_time_s": self.step,
            "fits": self.fits,
            "losses": self.losses.to_dict(),
            "slowest_stage": {
                "stage": slow.stage, "excess": slow.excess, "reason": slow.reason, "busy_s": list(slow.busy),
            },
            "options": [
                {**option.to_dict(), "sentence": self.sentence(option)}
                for option in self.options
                if option.kind not in (A_LITTLE, STRAGGLER)
            ],
            "sensitivities": [
                {**option.to_dict(), "saves_share": option.saves / self.step, "sentence": self.sentence(option)}
                for option in self.sensitivities
            ],
            "refused": dict(self.refused),
            "critical_path": [cause._asdict() for cause in self.critical_path],
        }  # fmt: skip

    def __str__(self) -> str:
        return "; ".join(map(self.sentence, self.actions[:3])) or "no change tried saves anything"

    def __rich__(self) -> RenderableType:
        from trainsim.study.explain_sections import explanation
        from trainsim.tables.terminal import rich_sections

        return rich_sections(explanation(self))

    def _repr_html_(self) -> str:
        from trainsim.study.explain_sections import explanation
        from trainsim.tables.page import card

        return card(explanation(self))


def explain(
    scenario: Scenario | str | Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    backend: str | None = None,
    store: AnswerStore | str | Path | None = None,
) -> Explanation:
    """What would make a step of *scenario* (or of the file or name) shorter: each change is run at detail ``block``.

    The options are those of ``sweep``. Raises what running the scenario raises.
    """
    base = as_scenario(scenario).replace({"simulation.detail": "block"})
    result = base.run()
    now, slow = measures(result), slowest(result)
    changes = (*moves(result, slow), *suggestions(base, TIME))
    trials = [Trial(base=base, parts=(change,)) for change in changes]
    trials += _machines(base, result, slow)
    runner = Runner(keep=measures, workers=workers, progress=progress, backend=backend, store=store)
    with bar("explain", len(trials) + RUNS, progress) as advance:
        lost = losses(result.simulation, advance)
        outcomes = runner.run_under(advance, trials)
    options = [_option(result, now, outcome, outcome.value) for outcome in outcomes if outcome.value]
    return Explanation(
        name=result.name,
        step=now.step_time,
        fits=now.fits,
        losses=lost,
        slowest=slow,
        options=tuple(sorted(options, key=lambda option: -option.saves)),
        refused={
            outcome.title: outcome.failure.reason
            for outcome in outcomes
            if outcome.failure and outcome.failure is not NOT_RUN
        },
        critical_path=result.critical_path.causes,
        interrupted=runner.interrupted,
    )


def _machines(base: Scenario, result: Result, slow: Slowest) -> list[Trial]:
    """The same on other machines: each part faster, twice and a little, and another slowest GPU."""
    parts = [Faster(name, factor) for factor in (TWICE, LITTLE) for name in parts_of(result.job)]
    trials = [Trial(base=base, name=PARTS[part.part].title, job_change=part) for part in parts]
    title, paced = straggler(result.job, result.pipeline[slow.stage], LITTLE)
    return [*trials, Trial(base=base, name=title, job_change=paced)]


def _option(result: Result, now: Measures, outcome: Outcome[Measures], then: Measures) -> Saving:
    """What a trial saves beside the run as it is."""
    trial = outcome.trial
    change, path = trial.job_change, result.critical_path.causes
    kinds = PARTS[change.part].kinds if isinstance(change, Faster) else ()
    return Saving(
        kind=_kind(now, trial, then),
        title=trial.title,
        saves=now.step_time - then.time_for(now.global_batch),
        then=then,
        changes=trial.changes,
        command=trial.command,
        share=sum(cause.share for cause in path if cause.kind in kinds) if kinds else None,
        factor=1 / change.factor if isinstance(change, Paced) else getattr(change, "factor", None),
    )


def _kind(now: Measures, trial: Trial, then: Measures) -> str:
    if isinstance(trial.job_change, Faster):
        return RESOURCE if trial.job_change.factor == TWICE else A_LITTLE
    if trial.job_change is not None:
        return STRAGGLER
    return LARGER_BATCH if then.global_batch > now.global_batch else trial.parts[0].kind
