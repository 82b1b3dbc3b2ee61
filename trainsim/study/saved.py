"""Between the runner and a store: which answers are there, and when new ones are written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Generic, TypeVar

from trainsim.result.result import Result
from trainsim.study.attempt import Prepared
from trainsim.study.code import code_digest
from trainsim.study.kept import failure_of, failure_text, form_of
from trainsim.study.key import key_of, place_of
from trainsim.study.store import AnswerStore, StoredRow
from trainsim.study.trial import Failure

T = TypeVar("T")

EVERY = 1.0
"""Seconds of work that are lost at most if the process is killed."""


class SavedAnswers(Generic[T]):
    """The answers of one run that are in *store*, and those that are put there, as ``keep`` makes them.

    Raises ScenarioError for a *keep* whose values have no form, and StoreError for a store that cannot be used.
    """

    def __init__(self, store: AnswerStore, keep: Callable[[Result], T]):
        self.store, self.form, self.code = store, form_of(keep), code_digest()
        self._keys: dict[Prepared, bytes] = {}
        self._rows: list[StoredRow] = []
        self._written = -EVERY

    def found(self, todo: Iterable[Prepared]) -> dict[Prepared, T | Failure]:
        """The answers to *todo* that are there."""
        keys = {task: key_of(task, kept=self.form.name, code=self.code) for task in todo}
        self._keys |= {task: key for task, key in keys.items() if key is not None}
        rows = self.store.found(key for key in keys.values() if key is not None)
        read = {task: self._read(task, rows[key]) for task, key in keys.items() if key in rows}
        return {task: answer for task, answer in read.items() if answer is not None}

    def _read(self, task: Prepared, row: StoredRow) -> T | Failure | None:
        try:
            return failure_of(row.text, place_of(task)) if row.failed else self.form.read(row.text)
        except ValueError:  # somebody has written into the file
            return None

    def add(self, task: Prepared, answer: T | Failure) -> None:
        """Take note of an answer, and write all down that were noted if the last time is a second ago."""
        row = self._row(task, answer)
        if row is not None:
            self._rows.append(row)
        if self._rows and monotonic() - self._written > EVERY:
            self.flush()

    def _row(self, task: Prepared, answer: T | Failure) -> StoredRow | None:
        """None for what is no answer for good."""
        key = self._keys.get(task)
        if key is None:
            return None
        if isinstance(answer, Failure):
            text = None if answer.of_the_moment else failure_text(answer, place_of(task))
            return None if text is None else StoredRow(key, self.form.name, True, text)
        text = self.form.written(answer)
        return None if text is None else StoredRow(key, self.form.name, False, text)

    def flush(self) -> None:
        """Write down what was noted, unless a data file of the package has been changed meanwhile."""
        rows, self._rows = self._rows, []
        if rows and self.code == code_digest():
            self.store.add(rows)
        self._written = monotonic()
