"""``ts.plan``: the layout that trains fastest, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from trainsim.analysis.kinds import TITLES
from trainsim.errors import ScenarioError
from trainsim.scenario.scenario import Scenario
from trainsim.study.planning.bounding import Bounded
from trainsim.study.planning.layout import Layout
from trainsim.study.planning.objectives import objectives
from trainsim.study.planning.own import own_layout, with_batch
from trainsim.study.planning.search import Found, Planned, finished, planned, search
from trainsim.study.planning.space import space_of
from trainsim.study.runner import Runner
from trainsim.study.store import Store
from trainsim.study.trial import Measures, Trial, as_scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType

TOP = 10
"""Layouts that a plan lists."""
WORTH = 0.002
"""Part of the step from which on a difference is worth a word."""
WORDS = {**TITLES, "compute": "kernels", "recompute": "recomputation", "other": "host and copies"}
"""Rows of the breakdown in words."""
COLUMNS = (
    "layout", "changes", "step_time_s", "over_best", "tokens_per_s_per_gpu", "mfu", "bubble_fraction",
    "exposed_communication_s", "needed_memory_bytes", "fits", "days", "cost", "why",
)  # fmt: skip
EXPOSED = ("tp", "cp", "ep", "pp", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A layout that was run and fits: its numbers, what to ``change`` in the scenario, and ``why`` the best is better,
    in words (nothing for the best)."""

    layout: Layout
    changes: Mapping[str, Any]
    ran: Planned
    over_best: float = 0.0
    why: str = ""

    @property
    def exposed(self) -> float:
        """Seconds of the mean rank in communication that nothing hides."""
        return sum(self.ran.breakdown.get(part, 0.0) for part in EXPOSED)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; seconds and bytes."""
        measured = self.ran.measured
        return {
            "layout": self.layout.title,
            "changes": dict(self.changes),
            "step_time_s": measured.step_time,
            "over_best": self.over_best,
            "tokens_per_s_per_gpu": measured.tokens_per_s_per_gpu,
            "mfu": measured.mfu,
            "bubble_fraction": measured.bubble_fraction,
            "exposed_communication_s": self.exposed,
            "needed_memory_bytes": measured.needed_memory,
            "fits": measured.fits,
            "days": measured.days,
            "cost": measured.cost,
            "why": self.why or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best layouts of a scenario, the first one ``best``; how many ``layouts`` there are, and what became of the
    others: ``refused`` by reason, ``too_large`` for memory, ``slower`` for sure (they have at least ``rest`` of what is
    to be small), ``run``. ``now`` is the scenario as it is, where it can be run. ``assumed`` are values that nobody
    gave. ``interrupted``: not all was looked at."""

    base: Scenario
    objective: str
    choices: tuple[Choice, ...]
    layouts: int
    refused: Mapping[str, int]
    too_large: int
    slower: int
    run: int
    rest: float | None
    capacity: float
    smallest: Bounded | None = None
    now: Choice | None = None
    assumed: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def best(self) -> Choice:
        """The first of ``choices``. Raises ScenarioError where nothing fits."""
        if not self.choices:
            raise ScenarioError(self.nothing)
        return self.choices[0]

    @property
    def nothing(self) -> str:
        """In words why there is no choice, and what would make one."""
        if not self.layouts:
            return (
                "no layout divides: sequences per step, GPUs and layers have no degrees in common; another "
                "training.global_batch or cluster.nodes would"
            )
        if self.smallest is None:
            reasons = "; ".join(list(self.refused)[:2])
            return f"none of the {self.layouts:,} layouts can be run: {reasons}"
        need, have = self.smallest.nbytes / 2**30, self.capacity / 2**30
        return (
            f"none of the {self.layouts:,} layouts fits: the smallest, {self.smallest.layout.title}, needs {need:.1f} "
            f"GiB of {have:.1f}; more cluster.nodes, another cluster.gpu or sharding.offload.optimizer = cpu would help"
        )

    def scenario(self, number: int = 0) -> Scenario:
        """The scenario of the choice with that *number*, from 0."""
        return self.base.replace(self.choices[number].changes)

    def frame(self) -> DataFrame:
        """A row per choice, the best first."""
        from pandas import DataFrame

        frame = DataFrame([choice.to_dict() for choice in self.choices], columns=list(COLUMNS))
        frame.attrs["interrupted"] = self.interrupted
        return frame

    def chart(self) -> Figure:
        """Where the time of each choice goes, as a matplotlib figure."""
        from trainsim.study.planning.picture import picture

        return picture(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds and bytes."""
        return {
            "name": self.base.name,
            "objective": self.objective,
            "layouts": self.layouts,
            "refused": dict(self.refused),
            "too_large": self.too_large,
            "slower": self.slower,
            "run": self.run,
            "capacity_bytes": self.capacity,
            "assumed": list(self.assumed),
            "now": self.now.to_dict() if self.now else None,
            "choices": [choice.to_dict() for choice in self.choices],
        }

    def __rich__(self) -> RenderableType:
        from trainsim.study.planning.sections import plan_sections
        from trainsim.tables.terminal import rich_sections

        return rich_sections(plan_sections(self))

    def _repr_html_(self) -> str:
        from trainsim.study.planning.sections import plan_sections
        from trainsim.tables.page import card

        return card(plan_sections(self))


class Running(TypedDict, total=False):
    """Who runs the layouts, as ``Runner`` takes it."""

    workers: int | None
    progress: bool | None
    backend: str | None
    store: Store | str | Path | None


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
    """The best layouts of *scenario* (or the file or name) on its machine: a row each, the best first.

    Searched are tensor, pipeline, data, context and expert parallelism, micro-batch, schedule and chunks,
    recomputation, sharding and sequence parallelism; *grid* gives other values by dotted path (of any field), *keep*
    names axes that stay. Layouts that cannot be the best, by bounds on time and memory, are not run; what is listed
    first is the best of all. ``objective``: time, cost or memory. Columns: ``layout`` in words, ``changes`` (as
    ``Scenario.replace`` takes them), ``step_time_s``, ``over_best`` (a part), ``tokens_per_s_per_gpu``, ``mfu``,
    ``bubble_fraction``, ``exposed_communication_s``, ``needed_memory_bytes``, ``fits``, ``days`` and ``cost`` (where
    tokens and a price are given), ``why`` the best is better. ``workers``, ``progress``, ``backend`` and
    ``store`` are those of ``sweep``. Raises ScenarioError where nothing fits, and what resolving the scenario raises.

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
        raise ScenarioError(f"top={top}: wants how many layouts to list, 1 or more")
    base, assumed = with_batch(scenario)
    coarse = base.replace({"simulation.detail": "block", "simulation.steps": 1})
    own = own_layout(coarse, coarse.resolve())
    space = list(space_of(coarse, question.grid, question.keep))
    layouts = space if question.grid or own in space else [own, *space]
    found = search(coarse, layouts, objective=objective, runner=runner, top=top, progress=question.progress)
    now = Trial(base=base, name="as it is")
    if not found.interrupted:
        same = base == coarse
        trials = [] if same else [Trial(base=base, parts=(t.layout.change(base),)) for t in found.best[:top]]
        *outcomes, here = runner.run([*trials, now], "finish")
        found = finished(found, outcomes, objective)
        return _plan(base, found, question, here=here.value, own=own, assumed=assumed)
    return _plan(base, found, question, here=None, own=own, assumed=assumed)


def _plan(base: Scenario, found: Found, question: Question, *, here: Planned | None, own: Layout, assumed: str) -> Plan:
    score = objectives[question.objective].of
    best = [t for t in found.best[: question.top] if t.ran]
    first = best[0].ran if best else None
    refused = Counter(b.refused for b in found.bounds if b.refused)
    failures = Counter(t.outcome.failure.reason for t in found.tried if t.outcome.failure)
    large = [b for b in found.bounds if not b.refused and not b.fits]
    now = None
    if here is not None:
        now = _choice(base, own, here, first or here, score)
    return Plan(
        base=base,
        objective=question.objective,
        choices=tuple(_choice(base, t.layout, t.ran, first, score) for t in best if t.ran and first),
        layouts=len(found.bounds),
        refused=dict((refused + failures).most_common()),
        too_large=len(large),
        slower=sum(b.fits for b in found.bounds) - len(found.tried),
        run=len(found.tried),
        rest=found.rest,
        capacity=base.resolve().cluster.memory_per_gpu,
        smallest=min(large, key=lambda b: b.nbytes, default=None),
        now=now,
        assumed=(assumed,) if assumed else (),
        interrupted=found.interrupted,
    )


def _choice(base: Scenario, layout: Layout, ran: Planned, best: Planned, score: Callable[[Measures], float]) -> Choice:
    return Choice(
        layout=layout,
        changes=layout.changes(base),
        ran=ran,
        over_best=score(ran.measured) / score(best.measured) - 1,
        why="" if ran is best else _why(ran, best),
    )


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
