"""What a study tries: a scenario with changes, and what came of running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from trainsim.analysis.memory import NEARLY_FULL
from trainsim.analysis.paged import simulate_paged
from trainsim.contracts.job import Job
from trainsim.errors import ScenarioError
from trainsim.result.result import Result
from trainsim.scenario.scenario import Scenario
from trainsim.tables.cells import Sign

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that can be changed in a scenario: ``values`` by dotted path, as ``Scenario.replace`` takes them.

    ``kind`` groups changes of one sort, such as ``batch`` or ``schedule``.
    """

    title: str
    values: Mapping[str, Any]
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A scenario with changes, to be run. ``job_change`` alters the resolved job where no field of a scenario says it,
    such as a GPU that is twice as fast."""

    base: Scenario
    parts: tuple[Change, ...] = ()
    name: str = ""
    job_change: Callable[[Job], Job] | None = None

    @property
    def title(self) -> str:
        return self.name or " + ".join(part.title for part in self.parts)

    @property
    def changes(self) -> dict[str, Any]:
        """What to change in the scenario: dotted path -> value."""
        return {path: value for part in self.parts for path, value in part.values.items()}

    @property
    def command(self) -> str:
        """The changes as the command line takes them.

        >>> base = Scenario.load("quickstart")
        >>> change = Change(title="", values={"parallel.tp": 4, "parallel.dp": None, "pipeline.layout": [16, 16]})
        >>> Trial(base=base, parts=(change,)).command
        '--set parallel.tp=4 --set parallel.dp=null --set pipeline.layout=[16,16]'
        """
        return " ".join(f"--set {path}={word(value).replace(' ', '')}" for path, value in self.changes.items())

    def plus(self, change: Change) -> Trial:
        """The same trial with *change*, which takes the place of earlier ones whose fields it all sets.

        >>> more, most = (Change(title=f"{n} nodes", values={"cluster.nodes": n}) for n in (2, 4))
        >>> Trial(base=Scenario.load("quickstart")).plus(more).plus(most).title
        '4 nodes'
        """
        kept = (part for part in self.parts if not set(part.values) <= set(change.values))
        return Trial(base=self.base, parts=(*kept, change), name=self.name, job_change=self.job_change)

    def scenario(self) -> Scenario:
        """The changed scenario. Raises ScenarioError for changes that cannot be made."""
        return self.base.replace(self.changes) if self.parts else self.base


def word(value: object) -> str:
    """A value as a scenario writes it.

    >>> word(None), word(True), word("zero3"), word([8, 8])
    ('null', 'true', 'zero3', '[8, 8]')
    """
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class Failure(NamedTuple):
    """Why a trial could not be run: the whole message, and the same in a line without the place in a file.

    ``of_the_moment``: it may well run another time, as after an interrupt, or when memory was full.
    """

    message: str
    reason: str
    of_the_moment: bool = False


NOT_RUN = Failure("interrupted before it ran", "interrupted before it ran", of_the_moment=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What came of a trial: ``value``, which is what the study keeps of its result, or the ``failure``."""

    trial: Trial
    value: T | None = None
    failure: Failure | None = None

    @property
    def title(self) -> str:
        return self.trial.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What studies compare of a result: seconds, bytes, and parts of one.

    ``full`` is the used part of what is fullest: a GPU, the memory of a node, or its drives; ``complaint`` says what is
    full beside the GPUs. ``gpu_hours``, ``days`` (with their likely range) and ``cost`` are of the whole
    training, where its tokens (and a price) are given.
    """

    step_time: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    hfu: float
    bubble_fraction: float
    peak_memory: float
    needed_memory: float
    capacity: float
    full: float
    gpus_fit: bool
    fits: bool
    complaint: str
    warnings: int
    global_batch: int
    gpus: int
    gpu_hours: float | None = None
    days: float | None = None
    days_low: float | None = None
    days_high: float | None = None
    cost: float | None = None

    def time_for(self, sequences: int) -> float:
        """Seconds for as many sequences as a step of *sequences* has, so that batches compare."""
        return self.step_time * (sequences / self.global_batch)


def measures(result: Result) -> Measures:
    """The numbers of a result that studies compare."""
    use, tokens = result.memory, result.tokens_per_s
    ranks, whole = result.job.parallel.ranks, result.training_cost
    ends = None if whole is None else whole.between(whole.days)
    beside = [store for store in (use.host, use.nvme) if store.peak_per_node]
    return Measures(
        step_time=result.step_time,
        tokens_per_s=tokens,
        tokens_per_s_per_gpu=tokens / ranks,
        mfu=result.mfu,
        hfu=result.hfu,
        bubble_fraction=result.bubble_fraction,
        peak_memory=use.peak,
        needed_memory=use.needed,
        capacity=use.capacity,
        full=max(use.peak / use.capacity, *(s.peak_per_node / max(s.capacity, 1.0) for s in beside), 0.0),
        gpus_fit=use.gpus_fit,
        fits=use.fits,
        complaint="; ".join(store.complaint for store in (use.host, use.nvme) if not store.fits),
        warnings=len(result.warnings),
        global_batch=result.job.training.global_batch,
        gpus=ranks,
        gpu_hours=None if whole is None else whole.gpu_hours,
        days=None if whole is None else whole.days,
        days_low=None if ends is None else ends[0],
        days_high=None if ends is None else ends[1],
        cost=None if whole is None else whole.cost,
    )


def verdict(measured: Measures) -> Sign:
    """Whether all fits in memory, in a word."""
    if not measured.fits:
        return Sign("host full" if measured.gpus_fit else "does not fit", "bad")
    return Sign("tight", "doubtful") if measured.full > NEARLY_FULL else Sign("fits", "good")


def run(scenario: Scenario, job_change: Callable[[Job], Job] | None = None) -> Result:
    """The result of *scenario*, whose job is changed first where *job_change* says how."""
    if job_change is None:
        return scenario.run()
    return Result(simulation=simulate_paged(job_change(scenario.resolve())))


def as_scenario(given: Scenario | str | Path) -> Scenario:
    """*given*, or the scenario of the file or the name. Raises ScenarioError for anything else."""
    if isinstance(given, Scenario):
        return given
    if isinstance(given, str | Path):
        return Scenario.load(given)
    raise ScenarioError(f"{given!r} is not a scenario; expected a Scenario, the name of one, or its file")
