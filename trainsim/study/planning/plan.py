"""``ts.plan``: the layout that trains fastest, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from trainsim.analysis.kinds import TITLES
from trainsim.errors import ScenarioError
from trainsim.scenario.scenario import Scenario
from trainsim.study.planning.answer import Choice, Plan
from trainsim.study.planning.layout import Layout
from trainsim.study.planning.objectives import Objective, objectives
from trainsim.study.planning.own import any_job, own_layout, with_batch
from trainsim.study.planning.search import Planned, Searched, finished, planned, search
from trainsim.study.planning.space import space_of
from trainsim.study.runner import Runner, Running
from trainsim.study.trial import Outcome, Trial, as_scenario

if TYPE_CHECKING:
    from pandas import DataFrame

TOP = 10
"""Layouts that a plan lists."""
WORTH = 0.002
"""Part of the step from which on a difference is worth a word."""
WORDS = {**TITLES, "compute": "kernels", "recompute": "recomputation", "other": "host and copies"}
"""Rows of the breakdown in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a plan: ``objective``, values of axes by path (``grid``), axes to ``keep`` as they are, how many
    layouts to list (``top``), and who runs what (``runner``)."""

    objective: str = "time"
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    keep: Sequence[str] = ()
    top: int = TOP
    runner: Runner[Planned] = field(default_factory=lambda: Runner(keep=planned))
    progress: bool | None = None


def plan(
    scenario: Scenario | str | Path,
    *,
    objective: str = "time",
    grid: Mapping[str, Sequence[Any]] | None = None,
    keep: Sequence[str] = (),
    top: int = TOP,
    **running: Unpack[Running],
) -> DataFrame:
    """The best layouts of *scenario* (or the file or name) on its machine: a row each, best first.

    Searched are tensor, pipeline, data, context and expert parallelism, micro-batch, schedule and chunks,
    recomputation, sharding and sequence parallelism; *grid* gives other values by dotted path (of any field), *keep*
    names axes that stay. Layouts that cannot be the best, by bounds on time and memory, are not run; what is listed
    first is the best of all. ``objective``: time, cost or memory. Columns: ``layout`` in words, ``changes`` (as
    ``Scenario.replace`` takes them), ``step_time_s``, ``over_best`` (a part), ``tokens_per_s_per_gpu``, ``mfu``,
    ``bubble_fraction``, ``exposed_communication_s``, ``needed_memory_bytes``, ``fits``, ``days`` and ``cost`` (where
    tokens and a price are given), ``why`` the best is better, ``breakdown_s``. ``ts.plan_chart`` draws the table.
    ``workers``, ``progress``, ``backend`` and ``store`` are those of ``sweep``. Raises ScenarioError where nothing
    fits, and what resolving the scenario raises.

    >>> small = {"model": "gpt2-xl", "cluster": {"topology": "dgx_a100", "nodes": 1}, "training": {"global_batch": 64}}
    >>> table = plan(Scenario.from_dict(small), grid={"training.micro_batch": [4]}, keep=["parallel.pp"], top=2)
    >>> table.step_time_s.is_monotonic_increasing, table.layout[0]
    (True, 'tp1 pp1 dp8, micro-batch 4, no recompute, zero1')
    """
    runner, progress = Runner(keep=planned, **running), running.get("progress")
    question = Question(objective=objective, grid=grid or {}, keep=keep, top=top, runner=runner, progress=progress)
    found = plan_for(as_scenario(scenario), question)
    _ = found.best
    return found.frame()


def plan_for(scenario: Scenario, question: Question) -> Plan:
    """The same as a value that also draws and prints itself; without choices where nothing fits."""
    objective, top, runner = objectives[question.objective], question.top, question.runner
    if not isinstance(top, int) or isinstance(top, bool) or top < 1:
        raise ScenarioError(f"top={top}: expected how many layouts to list, 1 or more")
    base, assumed = with_batch(scenario)
    coarse = base.replace({"simulation.detail": "block", "simulation.steps": 1})
    job, wrong = any_job(coarse)
    own = None if wrong else own_layout(coarse, job)
    space = list(space_of(coarse, question.grid, question.keep))
    layouts = space if own is None or question.grid or own in space else [own, *space]
    found = search(coarse, layouts, objective=objective, runner=runner, top=top, progress=question.progress)
    here: Outcome[Planned] | None = None
    if not found.interrupted:
        trials = [Trial(base=base, parts=(t.layout.change(base),)) for t in found.best[:top]] if base != coarse else []
        *outcomes, here = runner.run([*trials, Trial(base=base, name="as it is")], "finish")
        found = finished(found, outcomes, objective)
    choices = _choices(base, found, top, objective)
    return Plan(
        base=base,
        objective=question.objective,
        choices=choices,
        **_rest(found),
        capacity=job.cluster.memory_per_gpu,
        now=_now(base, own, here, choices, objective),
        not_now=here.failure.reason if here and here.failure else "",
        assumed=(assumed,) if assumed else (),
        interrupted=found.interrupted,
    )


def _choices(base: Scenario, found: Searched, top: int, objective: Objective) -> tuple[Choice, ...]:
    best = [(t.layout, t.ran) for t in found.best[:top] if t.ran]
    return tuple(_choice(base, layout, ran, best[0][1], objective) for layout, ran in best)


def _choice(base: Scenario, layout: Layout, ran: Planned, best: Planned, objective: Objective) -> Choice:
    return Choice(
        layout=layout,
        changes=layout.changes(base),
        ran=ran,
        over_best=objective.of(ran.measured) / objective.of(best.measured) - 1,
        why="" if ran is best else _why(ran, best),
    )


def _now(
    base: Scenario, own: Layout | None, here: Outcome[Planned] | None, choices: Sequence[Choice], objective: Objective
) -> Choice | None:
    """The scenario as it is, beside the best."""
    if own is None or here is None or here.value is None:
        return None
    return _choice(base, own, here.value, choices[0].ran if choices else here.value, objective)


def _rest(found: Searched) -> dict[str, Any]:
    """What became of the layouts that are not chosen."""
    refused = Counter(b.refused for b in found.bounds if b.refused)
    failures = Counter(t.outcome.failure.reason for t in found.tried if t.outcome.failure)
    large = [b for b in found.bounds if not b.refused and not b.fits]
    return {
        "layouts": len(found.bounds),
        "refused": dict((refused + failures).most_common()),
        "too_large": len(large),
        "slower": sum(b.fits for b in found.bounds) - len(found.tried),
        "run": len(found.tried) - failures.total(),
        "rest": found.rest,
        "smallest": min(large, key=lambda b: b.nbytes, default=None),
    }


def _why(other: Planned, best: Planned) -> str:
    """What takes longer than in the best, the largest differences first."""
    more = {
        part: other.breakdown.get(part, 0.0) - best.breakdown.get(part, 0.0)
        for part in {*other.breakdown, *best.breakdown}
    }
    least = WORTH * best.measured.step_time
    worst = sorted((part for part, seconds in more.items() if seconds > least), key=lambda part: (-more[part], part))
    return ", ".join(
        f"{WORDS.get(part, part)} {100 * more[part] / best.measured.step_time:+.1f}%" for part in worst[:3]
    )
