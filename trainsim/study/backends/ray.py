"""Ray: processes of this machine, or the cluster behind an address such as ``ray://host:10001``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from trainsim.errors import ScenarioError
from trainsim.study.backends import backends, needs
from trainsim.study.batches import Pool, through
from trainsim.study.interrupts import children_ignore_interrupts
from trainsim.study.work import Answers, StudyWork

T = TypeVar("T")


@backends.register("ray")
def ray(work: StudyWork[T]) -> Answers[T]:
    """The answers of a cluster's workers. Raises ScenarioError without Ray, or where no cluster answers."""
    return through(_pool, work)


@contextmanager
def _pool(work: StudyWork[Any]) -> Iterator[Pool]:
    try:
        library: Any = import_module("ray")
    except ImportError:
        raise needs("ray", "ray") from None
    started = not library.is_initialized()
    if started:
        _start(library, work)
    run = library.remote(max_retries=0)(_call)

    def submit(function: Any, argument: Any) -> Future[Any]:
        future: Future[Any] = run.remote(function, argument).future()
        return future

    count = max(int(library.cluster_resources().get("CPU", 1)), 1)
    deaths = (library.exceptions.WorkerCrashedError, library.exceptions.OutOfMemoryError)
    try:
        yield Pool(submit=submit, workers=min(count, work.workers or count), stop=lambda: None, deaths=deaths)
    finally:
        if started:
            library.shutdown()


def _start(library: Any, work: StudyWork[Any]) -> None:
    where = {"address": f"ray://{work.address}"} if work.address else {"num_cpus": work.workers}
    try:
        with children_ignore_interrupts():
            library.init(**where, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        raise ScenarioError(f"backend ray://{work.address}: no cluster of Ray answers there: {error}") from None


def _call(function: Any, argument: Any) -> Any:
    return function(argument)
