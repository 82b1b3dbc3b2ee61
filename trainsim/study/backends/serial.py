"""One trial after the other, in this process."""

from __future__ import annotations

from typing import TypeVar

from trainsim.errors import ScenarioError
from trainsim.study.attempt import attempt
from trainsim.study.backends import backends, without_address
from trainsim.study.work import Answers, StudyWork

T = TypeVar("T")


@backends.register("serial")
def serial(work: StudyWork[T]) -> Answers[T]:
    """Each trial as it stands in *work*. Raises ScenarioError for several workers."""
    without_address("serial", work)
    if work.workers not in (None, 1):
        raise ScenarioError(f"workers={work.workers}: backend serial runs in this process alone; leave out one of them")
    for prepared in work.todo:
        yield prepared, attempt(prepared.task, work.keep)
