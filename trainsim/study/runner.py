"""The one way in which studies run: every different trial once, here or elsewhere, with a bar, and remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Generic, TypedDict, TypeVar

from trainsim.errors import ScenarioError
from trainsim.report.progress import AdvanceBar, bar
from trainsim.result.result import Result
from trainsim.study.attempt import Prepared, attempt, prepared
from trainsim.study.backends import backend_of
from trainsim.study.saved import SavedAnswers
from trainsim.study.store import AnswerStore
from trainsim.study.stores import store_at
from trainsim.study.trial import NOT_RUN, Failure, Outcome, Trial
from trainsim.study.work import Answers

T = TypeVar("T")

STARTING = 4.0
"""Seconds that processes must save before it pays to start them."""


class Running(TypedDict, total=False):
    """Who runs trials, as ``Runner`` takes it."""

    workers: int | None
    progress: bool | None
    backend: str | None
    store: AnswerStore | str | Path | None


class Runner(Generic[T]):
    """Runs the trials of one study and remembers what came of them; ``keep`` is what it takes from a result.

    ``workers`` processes run (None: one per core where that pays; 1: none but this one), ``progress`` shows a bar on
    standard error (None: where somebody looks at it). ``backend`` says who runs: ``serial``, ``processes``, ``dask``,
    ``ray``, or one of the latter with an address, as in ``dask://host:8786`` (None: this process, or several where that
    pays). ``store`` is a file or a folder of answers (``stores``): what is there is not run, and what is run goes there
    (at the latest after a second of work; a kill at any moment leaves what was stored).

    ``interrupted`` says whether somebody pressed Ctrl-C: what was finished by then is kept. ``found`` counts the trials
    whose answer was in the store.

    Raises ScenarioError for a number of workers that is none and for a *keep* whose values cannot be stored,
    UnknownName for a backend that there is not, and StoreError for a store that cannot be used.
    """

    def __init__(
        self,
        *,
        keep: Callable[[Result], T],
        workers: int | None = None,
        progress: bool | None = None,
        backend: str | None = None,
        store: AnswerStore | str | Path | None = None,
    ):
        wrong = isinstance(workers, bool) or not isinstance(workers, int | None)
        if wrong or (workers is not None and workers < 1):
            raise ScenarioError(f"workers={workers}: expected 1 or more processes")
        self.keep, self.workers, self.progress = keep, workers, progress
        self.interrupted = False
        self._elsewhere = backend_of(backend or ("serial" if workers == 1 else "processes"), workers)
        self._automatic = backend is None
        self._look_first = backend is None and workers is None
        self._answers: dict[Prepared, T | Failure] = {}
        self._saved = None if store is None else SavedAnswers(store_at(store), keep)
        self.found = 0

    def run(self, trials: Iterable[Trial], title: str) -> list[Outcome[T]]:
        """What came of each of *trials*, in their order, under a bar of that *title*."""
        trials = list(trials)
        with bar(title, len(trials), self.progress) as advance:
            return self.run_under(advance, trials)

    def run_under(self, advance: AdvanceBar, trials: Sequence[Trial]) -> list[Outcome[T]]:
        """The same under a bar that shows other work too: *advance* is called once for each of *trials*."""
        if not self._saved and not self._look_first and len(trials) > 1:  # else it may be that there is nothing to run
            self._elsewhere.start(len(trials))
        tasks = [prepared(trial, stored=self._saved is not None) for trial in trials]
        todo = [t for t in dict.fromkeys(tasks) if isinstance(t, Prepared) and t not in self._answers]
        if self._saved:
            there = self._saved.found(todo)
            self._answers |= there
            self.found += len(there)
            todo = [task for task in todo if task not in there]
        for _ in range(len(tasks) - len(todo)):
            advance(known=True)
        self._run_and_save(todo, advance)
        answers = [t if isinstance(t, Failure) else self._answers.get(t, NOT_RUN) for t in tasks]
        return [_outcome(trial, answer) for trial, answer in zip(trials, answers, strict=True)]

    def _run_and_save(self, todo: Sequence[Prepared], advance: AdvanceBar) -> None:
        """Run *todo*; what is finished is remembered and stored, whatever ends it."""
        try:
            for task, answer in self._run(todo):
                self._answers[task] = answer
                if self._saved:
                    self._saved.add(task, answer)
                advance()
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            if self._saved:
                self._saved.flush()

    def _run(self, todo: Sequence[Prepared]) -> Answers[T]:
        """The answers to *todo*: here, until processes would save more than they cost, or where they are wanted."""
        if not self._look_first and not (self._automatic and len(todo) == 1):
            yield from self._elsewhere.run(todo, self.keep)
            return
        began = perf_counter()
        for done, task in enumerate(todo):
            left = len(todo) - done
            if left > 1 and done and (perf_counter() - began) / done * left / 2 > STARTING:
                yield from self._elsewhere.run(todo[done:], self.keep)
                return
            yield task, attempt(task.task, self.keep)


def _outcome(trial: Trial, answer: T | Failure) -> Outcome[T]:
    if isinstance(answer, Failure):
        return Outcome(trial=trial, failure=answer)
    return Outcome(trial=trial, value=answer)
