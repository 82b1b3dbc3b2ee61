"""Several runs side by side: what each takes, how much of it is bubble, what it keeps and sends; ``ts.compare``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.analysis.passes import in_flight, tasks_of
from trainsim.errors import ScenarioError
from trainsim.result.comparison import Comparison, differences, stated
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.study.runner import Runner
from trainsim.study.trial import Outcome, Trial, as_scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType

LABELS = 3
"""Fields that tell runs of one name apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run in numbers. Times in seconds, memory in bytes; ``activations`` are the most that a rank of each stage
    keeps for its backward passes, ``in_flight`` the chunks of microbatches that these belong to, ``p2p`` and ``dp`` the
    bytes that the mean rank sends to other stages and to replicas in a step."""

    name: str
    schedule: str
    step_time: float
    period: float | None
    tokens_per_s: float
    mfu: float
    bubble_fraction: float
    span_fraction: float
    period_fraction: float | None
    idle_over_ideal: float
    activations: tuple[float, ...]
    in_flight: tuple[int, ...]
    p2p: float
    dp: float
    memory_peak: float
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data with units in the keys."""
        units = {
            "step_time": "step_time_s",
            "period": "period_s",
            "activations": "activations_bytes",
            "p2p": "p2p_bytes_per_rank",
            "dp": "dp_bytes_per_rank",
            "memory_peak": "memory_peak_bytes",
        }
        data = {units.get(key, key): value for key, value in asdict(self).items()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SideBySide:
    """Runs in the order given; ``names`` tell them apart. ``refused`` are those that could not be run."""

    results: tuple[Result, ...]
    names: tuple[str, ...]
    refused: tuple[Outcome[Result], ...] = ()
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __getitem__(self, number: int) -> Result:
        return self.results[number]

    @cached_property
    def columns(self) -> tuple[ComparedRun, ...]:
        """Each run in numbers."""
        return tuple(_compared(name, result) for name, result in zip(self.names, self.results, strict=True))

    @cached_property
    def differences(self) -> tuple[Comparison, ...]:
        """Every run but the first against the first."""
        first, *others = zip(self.names, self.results, strict=True)
        return tuple(replace(two - first[1], before=first[0], after=name) for name, two in others)

    @property
    def table(self) -> DataFrame:
        """A row per run."""
        from pandas import DataFrame

        return DataFrame([column.to_dict() for column in self.columns])

    def gantt(self, window: tuple[float, float] | None = None) -> Figure:
        """The Gantt charts above each other on one time axis, as a matplotlib figure; *window* in seconds zooms in."""
        from trainsim.report.stack import stacked

        return stacked(self.results, self.names, window=window)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with stable keys: ``runs``, ``differences`` of each later run from the first, and ``refused``."""
        return {
            "runs": [column.to_dict() for column in self.columns],
            "differences": [difference.to_dict() for difference in self.differences],
            "refused": [
                {"name": outcome.title, "error": outcome.failure.message} for outcome in self.refused if outcome.failure
            ],
        }

    def __repr__(self) -> str:
        steps = ", ".join(f"{column.name}: {column.step_time:.4g} s" for column in self.columns)
        return f"<SideBySide {steps}>"

    def __rich__(self) -> RenderableType:
        from trainsim.report.compared import side_by_side
        from trainsim.tables.terminal import rich_sections

        return rich_sections(side_by_side(self))

    def _repr_html_(self) -> str:
        from trainsim.report.compared import side_by_side
        from trainsim.report.sections.gantt_chart import drawn, png_of
        from trainsim.tables.page import card

        return card([*side_by_side(self), drawn(png_of(self.gantt()))])


def compare(runs: Iterable[Scenario | Result | Trial | str | Path], *, progress: bool | None = None) -> SideBySide:
    """Run what has not been run yet (scenarios, their files or names) and put it side by side.

    What cannot be run is told with its reason. ``progress`` shows a bar on standard error (None: where somebody looks).
    Raises ScenarioError for fewer than two, and if none can be run.
    """
    given = list(runs) if not isinstance(runs, str | Path) else [runs]
    if len(given) < 2:
        raise ScenarioError(f"{len(given)} to compare: wants two or more scenarios or results")
    trials = {k: _trial(run) for k, run in enumerate(given) if not isinstance(run, Result)}
    runner = Runner(keep=whole, workers=1, progress=progress)  # results are too large to travel between processes
    outcomes = dict(zip(trials, runner.run(trials.values(), "compare"), strict=True))
    every = [run if isinstance(run, Result) else outcomes[k].value for k, run in enumerate(given)]
    results = tuple(result for result in every if result is not None)
    refused = tuple(outcome for outcome in outcomes.values() if outcome.failure)
    if not results:
        reasons = [outcome.failure.message for outcome in refused if outcome.failure]
        raise ScenarioError(f"none could be run; the first one: {reasons[0]}")
    return SideBySide(results=results, names=_names(results), refused=refused, interrupted=runner.interrupted)


def whole(result: Result) -> Result:
    """What is kept of a result: all of it."""
    return result


def _trial(run: Scenario | Result | Trial | str | Path) -> Trial:
    if isinstance(run, Trial):
        return run
    assert not isinstance(run, Result)
    scenario = as_scenario(run)
    return Trial(base=scenario, name=scenario.name)


def _compared(name: str, result: Result) -> ComparedRun:
    bubble, lanes, memory = result.bubble, result.lanes, result.memory
    stages = memory.per_stage
    held = [in_flight(tasks_of(lanes, int(lanes.trace.rank_class[stage.rank]))) for stage in stages]
    return ComparedRun(
        name=name,
        schedule=result.job.pipeline.schedule,
        step_time=result.step_time,
        period=result.period,
        tokens_per_s=result.tokens_per_s,
        mfu=result.mfu,
        bubble_fraction=bubble.fraction,
        span_fraction=bubble.span_fraction,
        period_fraction=bubble.period_fraction,
        idle_over_ideal=bubble.idle_over_ideal,
        activations=tuple(stage.most_activations for stage in stages),
        in_flight=tuple(held),
        p2p=result.communication["pp"].bytes_per_rank,
        dp=result.communication["dp"].bytes_per_rank,
        memory_peak=memory.peak,
        fits=memory.fits,
    )


def _names(results: tuple[Result, ...]) -> tuple[str, ...]:
    """What tells the runs apart: their names, or else the fields of their scenarios that differ."""
    names = [result.name for result in results]
    if len(set(names)) == len(names):
        return tuple(names)
    every = [stated(result) for result in results]
    first, *others = every
    differing = (path for other in others for path in differences(first, other))
    paths = dict.fromkeys(path for path in differing if path != "pipeline.layout")
    labels = [", ".join(filter(None, (_label(data, path) for path in list(paths)[:LABELS]))) for data in every]
    return tuple(label or f"{name} ({k})" for k, (name, label) in enumerate(zip(names, labels, strict=True), 1))


def _label(data: Any, path: str) -> str:
    """A field of a scenario in few words: ``zb-v``, ``chunks 2``; nothing if the scenario does not have it."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    if data is None:
        return ""
    return data if isinstance(data, str) else f"{path.rpartition('.')[2]} {data}"
