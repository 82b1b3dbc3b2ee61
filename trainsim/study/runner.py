"""The one way in which studies run: every different trial once, here or on several processes, with a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, TypeVar

from trainsim.contracts.job import Job
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.garbage import no_search_for_cycles
from trainsim.report.progress import bar
from trainsim.result.result import Result
from trainsim.scenario.named import content
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import NOT_RUN, Failure, Outcome, Trial, run

T = TypeVar("T")

STARTING = 4.0
"""Seconds that processes must save before it pays to start them."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trial ready to run. Equal ones give equal results, so one of them is run."""

    scenario: Scenario = field(compare=False)  # its ``content`` speaks for it, and is read from the files once
    content: str
    job_change: Callable[[Job], Job] | None
    name: str  # two files may say the same under two names
    folder: Any  # and mean other files beside them


class Runner(Generic[T]):
    """Runs the trials of one study and remembers what came of them; ``keep`` is what it takes from a result.

    ``workers`` processes run (None: one per core where that pays; 1: none but this one), ``progress`` shows a bar on
    standard error (None: where somebody looks at it). ``interrupted`` says whether somebody pressed Ctrl-C: what was
    finished by then is kept. Raises ScenarioError for a number of workers that is none.
    """

    def __init__(self, *, keep: Callable[[Result], T], workers: int | None = None, progress: bool | None = None):
        wrong = isinstance(workers, bool) or not isinstance(workers, int | None)
        if wrong or (workers is not None and workers < 1):
            raise ScenarioError(f"workers={workers}: wants 1 or more processes")
        self.keep, self.workers, self.progress = keep, workers, progress
        self.interrupted = False
        self._answers: dict[Prepared, T | Failure] = {}

    def run(self, trials: Iterable[Trial], title: str) -> list[Outcome[T]]:
        """What came of each of *trials*, in their order, under a bar of that *title*."""
        trials = list(trials)
        with bar(title, len(trials), self.progress) as advance:
            return self.run_under(advance, trials)

    def run_under(self, advance: Callable[[], None], trials: Sequence[Trial]) -> list[Outcome[T]]:
        """The same under a bar that shows other work too: *advance* is called once for each of *trials*."""
        tasks = [_task(trial) for trial in trials]
        todo = [t for t in dict.fromkeys(tasks) if isinstance(t, Prepared) and t not in self._answers]
        for _ in range(len(tasks) - len(todo)):
            advance()
        try:
            for task, answer in self._run(todo):
                self._answers[task] = answer
                advance()
        except KeyboardInterrupt:
            self.interrupted = True
        answers = [t if isinstance(t, Failure) else self._answers.get(t, NOT_RUN) for t in tasks]
        return [_outcome(trial, answer) for trial, answer in zip(trials, answers, strict=True)]

    def _run(self, todo: Sequence[Prepared]) -> Iterator[tuple[Prepared, T | Failure]]:
        """The answers to *todo*: here, until processes would save more than they cost."""
        began = perf_counter()
        for done, task in enumerate(todo):
            left = len(todo) - done
            slow = done and (perf_counter() - began) / done * left / 2 > STARTING
            if left > 1 and (slow if self.workers is None else self.workers > 1):
                yield from _in_processes(todo[done:], self.keep, self.workers)
                return
            yield task, attempt(task, self.keep)


def attempt(task: Prepared, keep: Callable[[Result], T]) -> T | Failure:
    """What is kept of the result of *task*, or why there is none, whatever went wrong."""
    try:
        with no_search_for_cycles():  # next to nothing of a point refers back, and all of it is gone with the point
            return keep(run(task.scenario, task.job_change))
    except Exception as error:
        return failed(error)


def failed(error: Exception) -> Failure:
    """The failure of an error: in its own words if it was raised on purpose."""
    if isinstance(error, TrainsimError):
        return Failure(str(error), error.reason)
    text = f"{type(error).__name__}: {error}"
    return Failure(text, text)


def _task(trial: Trial) -> Prepared | Failure:
    try:
        scenario = trial.scenario()
        says = content(scenario.spec, scenario.origin)
        return Prepared(scenario, says, trial.job_change, scenario.name, scenario.origin.folder)
    except Exception as error:
        return failed(error)


def _outcome(trial: Trial, answer: T | Failure) -> Outcome[T]:
    if isinstance(answer, Failure):
        return Outcome(trial=trial, failure=answer)
    return Outcome(trial=trial, value=answer)


def _in_processes(
    todo: Sequence[Prepared], keep: Callable[[Result], T], workers: int | None
) -> Iterator[tuple[Prepared, T | Failure]]:
    """The answers to *todo* as they come. A process that dies costs the trial that it died of."""
    left = dict(enumerate(todo))
    while left:
        try:
            for number, answer in _parallel(left, keep, workers):
                yield left.pop(number), answer
        except Exception as died:  # the operating system killed a process: try one trial alone, go on with the others
            task = left.pop(next(iter(left)))
            yield task, _alone(task, keep, died)


def _parallel(
    tasks: dict[int, Prepared], keep: Callable[[Result], T], workers: int | None
) -> Iterator[tuple[int, T | Failure]]:
    from joblib import Parallel, cpu_count, delayed

    processes = min(workers or int(cpu_count()), len(tasks))
    jobs = [delayed(_numbered)(number, task, keep) for number, task in tasks.items()]
    yield from Parallel(n_jobs=processes, return_as="generator_unordered", batch_size=1)(jobs)


def _numbered(number: int, task: Prepared, keep: Callable[[Result], T]) -> tuple[int, T | Failure]:
    return number, attempt(task, keep)


def _alone(task: Prepared, keep: Callable[[Result], T], before: Exception) -> T | Failure:
    """The answer to a task after a process died, from a process of its own."""
    from joblib import Parallel, delayed

    try:
        answers: list[T | Failure] = Parallel(n_jobs=2)([delayed(attempt)(task, keep)])
        return answers[0]
    except Exception:
        text = f"the process that ran it died ({type(before).__name__}); out of memory?"
        return Failure(text, text)
