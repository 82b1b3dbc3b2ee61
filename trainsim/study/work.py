"""What a backend is given to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainsim.result.result import Result
from trainsim.study.attempt import Prepared
from trainsim.study.trial import Failure

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyWork(Generic[T]):
    """Trials to run, what to ``keep`` of each result, on how many ``workers`` (None: as many as there are), and the
    ``address`` of who runs them, as in ``dask://address`` (empty: this machine)."""

    todo: Sequence[Prepared]
    keep: Callable[[Result], T]
    workers: int | None = None
    address: str = ""


Answers = Iterator[tuple[Prepared, T | Failure]]
"""Each trial with its answer, in any order."""
