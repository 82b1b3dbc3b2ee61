"""Running a trial, whatever goes wrong: what processes and machines are given, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from trainsim.contracts.job import Job
from trainsim.errors import TrainsimError
from trainsim.garbage import no_search_for_cycles
from trainsim.result.result import Result
from trainsim.scenario.named import content, contents
from trainsim.scenario.scenario import Scenario
from trainsim.study.code import code_digest
from trainsim.study.trial import Failure, Trial, run

T = TypeVar("T")

OF_THE_MOMENT = (MemoryError, RecursionError, OSError, ImportError)
"""Errors that say more of the machine, as it was just then, than of the trial."""
MEANWHILE = "a file that the scenario names was changed meanwhile; run it again"
CHANGED = Failure(MEANWHILE, MEANWHILE, of_the_moment=True)


class OtherCode(TrainsimError):
    """Give the processes the code that the message asks for."""


class TrialTask(NamedTuple):
    """What another process needs of a trial. ``content`` is all that the scenario said when it was prepared."""

    scenario: Scenario
    content: str
    job_change: Callable[[Job], Job] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trial ready to run. Equal ones give equal results, so one of them is run."""

    scenario: Scenario = field(compare=False)  # its ``content`` speaks for it, and is read from the files once
    content: str
    job_change: Callable[[Job], Job] | None
    name: str  # two files may say the same under two names
    folder: Any  # and mean other files beside them
    meaning: str | None = field(default=None, compare=False)  # the content without names, for those who store

    @property
    def group(self) -> str:
        """What trials share that are quickly run one after the other: machine, model and software."""
        data = self.scenario.data
        return repr([data.get(key) for key in ("cluster", "model", "framework")])

    @property
    def task(self) -> TrialTask:
        """What is run of it."""
        return TrialTask(self.scenario, self.content, self.job_change)


def prepared(trial: Trial, *, stored: bool = False) -> Prepared | Failure:
    """*trial* ready to run, or to be looked up where it is *stored*; or why it cannot be."""
    try:
        scenario = trial.scenario()
        read = contents(scenario.spec, scenario.origin) if stored else (content(scenario.spec, scenario.origin), None)
        return Prepared(scenario, read[0], trial.job_change, scenario.name, scenario.origin.folder, read[1])
    except Exception as error:
        return failed(error)


def attempt(task: TrialTask, keep: Callable[[Result], T]) -> T | Failure:
    """What is kept of the result of *task*, or why there is none, whatever went wrong."""
    try:
        with no_search_for_cycles():  # next to nothing of a point refers back, and all of it is gone with the point
            kept: T | Failure = keep(run(task.scenario, task.job_change))
            says = task.scenario.said
    except Exception as error:
        kept, says = failed(error), content(task.scenario.spec, task.scenario.origin)
    return kept if says == task.content else CHANGED


def failed(error: Exception) -> Failure:
    """The failure of an error: in its own words if it was raised on purpose."""
    if isinstance(error, TrainsimError):
        return Failure(str(error), error.reason)
    text = f"{type(error).__name__}: {error}"
    return Failure(text, text, of_the_moment=isinstance(error, OF_THE_MOMENT))


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Tasks that go to another process together, with the ``code`` (see ``code_digest``) of who wants them run."""

    tasks: Sequence[TrialTask]
    keep: Callable[[Result], T]
    code: str


def attempt_all(batch: Batch[T]) -> tuple[list[T | Failure], float]:
    """The answers to the tasks of *batch*, and seconds that they took. Raises OtherCode in a process that runs other
    code than who asks: its numbers would be those of another version."""
    check_code(batch.code)
    began = perf_counter()
    answers = [attempt(task, batch.keep) for task in batch.tasks]
    return answers, perf_counter() - began


@lru_cache(maxsize=8)
def check_code(code: str) -> None:
    """Raises OtherCode where *code* is not that of this process."""
    if code != code_digest():
        raise OtherCode(
            "the processes that run points have another trainsim than this one: other code, data files, libraries or "
            "added packages; install the same on all machines, and start Python anew if files have changed since"
        )
