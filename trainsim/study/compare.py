"""Several runs side by side: what each takes, how much of it is bubble, what it keeps and sends; ``ts.compare``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from trainsim.analysis.passes import in_flight, tasks_of
from trainsim.errors import ScenarioError
from trainsim.result.comparison import ComparableStep, Comparison, comparable, differences, stated
from trainsim.result.comparison import compare as difference
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.study.runner import Runner, Running
from trainsim.study.store import AnswerStore
from trainsim.study.trial import Outcome, Trial, as_scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType

T = TypeVar("T")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """What a comparison keeps of a run: its ``numbers``, and the ``step`` that others differ from."""

    numbers: ComparedRun
    step: ComparableStep

    def of(self, trial: Trial) -> KeptRun:
        """The same of *trial*: what is stored says nothing of names."""
        scenario = trial.scenario()
        says = {} if trial.job_change else stated(scenario.resolved)
        return replace(self, step=replace(self.step, name=scenario.name, stated=says))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SideBySide:
    """Runs in the order given; ``names`` tell them apart. ``refused`` are those that could not be run, ``found`` counts
    those that were in a store. ``results`` are empty where only numbers came back, from a store or from processes."""

    runs: tuple[KeptRun, ...]
    names: tuple[str, ...]
    results: tuple[Result, ...] = ()
    refused: tuple[Outcome[Any], ...] = ()
    interrupted: bool = False
    found: int = 0

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._whole)

    def __getitem__(self, number: int) -> Result:
        return self._whole[number]

    @property
    def _whole(self) -> tuple[Result, ...]:
        if not self.results:
            raise ScenarioError(
                "these runs are numbers only, from a store or from processes; compare without store, backend and "
                "workers for charts and results"
            )
        return self.results

    @cached_property
    def columns(self) -> tuple[ComparedRun, ...]:
        """Each run in numbers."""
        return tuple(replace(run.numbers, name=name) for name, run in zip(self.names, self.runs, strict=True))

    @cached_property
    def differences(self) -> tuple[Comparison, ...]:
        """Every run but the first against the first."""
        first, *others = (replace(run.step, name=name) for name, run in zip(self.names, self.runs, strict=True))
        return tuple(difference(first, other) for other in others)

    @property
    def table(self) -> DataFrame:
        """A row per run."""
        from pandas import DataFrame

        return DataFrame([column.to_dict() for column in self.columns])

    def gantt(self, window: tuple[float, float] | None = None) -> Figure:
        """The Gantt charts above each other on one time axis, as a matplotlib figure; *window* in seconds zooms in.
        Raises ScenarioError where there are numbers only."""
        from trainsim.report.stack import stacked

        return stacked(self._whole, self.names, window=window)

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

        return card([*side_by_side(self), *([drawn(png_of(self.gantt()))] if self.results else [])])


def compare(
    runs: Iterable[Scenario | Result | Trial | str | Path],
    *,
    workers: int | None = None,
    progress: bool | None = None,
    backend: str | None = None,
    store: AnswerStore | str | Path | None = None,
) -> SideBySide:
    """Runs or scenarios (or their files or names) side by side; what has not been run yet is run.

    What cannot be run is told with its reason. ``workers``, ``progress``, ``backend`` and ``store`` are those of
    ``Runner``. With any but ``progress`` only numbers come back and no charts: whole results are too large to be stored
    or to travel between processes. Raises ScenarioError for fewer than two, and if none can be run.
    """
    given = list(runs) if not isinstance(runs, str | Path) else [runs]
    if len(given) < 2:
        raise ScenarioError(f"{len(given)} to compare: expected two or more scenarios or results")
    trials = {k: _trial(run) for k, run in enumerate(given) if not isinstance(run, Result)}
    running = Running(workers=workers, progress=progress, backend=backend, store=store)
    if (workers, backend, store) == (None, None, None):
        ran = _run(trials, Runner(keep=whole, workers=1, progress=progress))
        every = {**{k: run for k, run in enumerate(given) if isinstance(run, Result)}, **ran.values}
        results = tuple(every[k] for k in sorted(every))
        return _side_by_side([_of(result) for result in results], ran, results)
    numbers = _run(trials, Runner(keep=kept_of, **running))
    kept = {k: value.of(trials[k]) for k, value in numbers.values.items()}
    kept |= {k: _of(run) for k, run in enumerate(given) if isinstance(run, Result)}
    return _side_by_side([kept[k] for k in sorted(kept)], numbers)


class _Ran(NamedTuple, Generic[T]):
    """What came of the runs that were asked for, by their place among all."""

    values: dict[int, T]
    refused: tuple[Outcome[T], ...]
    interrupted: bool
    found: int


def _run(trials: Mapping[int, Trial], runner: Runner[T]) -> _Ran[T]:
    outcomes = dict(zip(trials, runner.run(trials.values(), "compare"), strict=True))
    values = {k: outcome.value for k, outcome in outcomes.items() if outcome.value is not None}
    refused = tuple(outcome for outcome in outcomes.values() if outcome.failure)
    return _Ran(values, refused, runner.interrupted, runner.found)


def _side_by_side(kept: Sequence[KeptRun], ran: _Ran[Any], results: tuple[Result, ...] = ()) -> SideBySide:
    if not kept:
        reasons = [outcome.failure.message for outcome in ran.refused if outcome.failure]
        raise ScenarioError(f"none could be run; the first one: {reasons[0]}")
    return SideBySide(
        runs=tuple(kept),
        names=_names([run.step for run in kept]),
        results=results,
        refused=ran.refused,
        interrupted=ran.interrupted,
        found=ran.found,
    )


def whole(result: Result) -> Result:
    """What is kept of a result: all of it."""
    return result


def _trial(run: Scenario | Result | Trial | str | Path) -> Trial:
    if isinstance(run, Trial):
        return run
    assert not isinstance(run, Result)
    scenario = as_scenario(run)
    return Trial(base=scenario, name=scenario.name)


def kept_of(result: Result) -> KeptRun:
    """What is stored of a result: nothing that depends on what things are called."""
    return KeptRun(numbers=_numbers(result), step=replace(comparable(result), name="", stated={}))


def _of(result: Result) -> KeptRun:
    return KeptRun(numbers=_numbers(result), step=comparable(result))


def _numbers(result: Result) -> ComparedRun:
    bubble, lanes, memory = result.bubble, result.lanes, result.memory
    stages = memory.per_stage
    held = [in_flight(tasks_of(lanes, int(lanes.trace.rank_class[stage.rank]))) for stage in stages]
    return ComparedRun(
        name="",
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


def _names(runs: Sequence[ComparableStep]) -> tuple[str, ...]:
    """What tells the runs apart: their names, or else the fields of their scenarios that differ."""
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return tuple(names)
    first, *others = every = [run.stated for run in runs]
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
