"""Processes of this machine, which stay for the next study of the same program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from trainsim.errors import TrainsimError
from trainsim.study.attempt import check_code
from trainsim.study.backends import backends, starts, without_address
from trainsim.study.batches import AHEAD, Pool, in_batches
from trainsim.study.code import code_digest
from trainsim.study.interrupts import serve, signals_later
from trainsim.study.work import Answers, StudyWork

A = TypeVar("A")
T = TypeVar("T")

TRACKERS = ("joblib.externals.loky.backend.resource_tracker", "multiprocessing.resource_tracker")
"""Who clears away what processes share, each a process of its own."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Processes that fill the cores need no threads beside them."""


@backends.register("processes")
def processes(work: StudyWork[T]) -> Answers[T]:
    """The answers of as many processes as *work* says, or as there are cores."""
    without_address("processes", work)
    if work.todo:
        yield from in_batches(pool(_count(work.workers, len(work.todo))), work)


class ProcessDied(TrainsimError):
    """Ask for fewer workers: each needs memory of its own."""


def as_they_come(function: Callable[[A], T], arguments: Sequence[A], workers: int | None) -> Iterator[T]:
    """What *function* gives for each of *arguments*, in any order, from so many processes.

    Raises ProcessDied when one of them has died.
    """
    opened, left = pool(_count(workers, len(arguments))), iter(arguments)
    flying: set[Future[T]] = set()
    try:
        while True:
            more = islice(left, AHEAD * opened.workers - len(flying))
            flying |= {opened.submit(function, argument) for argument in more}
            if not flying:
                return
            done, flying = wait(flying, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except opened.deaths as error:
        raise ProcessDied("a worker process died; out of memory? --workers 1 needs the least") from error
    finally:
        if flying:
            opened.stop()


def start(workers: int | None, trials: int) -> None:
    """Let processes begin to import what they need, which takes as long as many points."""
    count = _count(workers, trials)
    submit = pool(count).submit
    for _ in range(count):
        submit(check_code, code_digest())


starts["processes"] = start


def _count(workers: int | None, most: int) -> int:
    """How many processes: as many as are wanted or there are cores, and never more than there is to do."""
    from joblib import cpu_count

    return min(workers or int(cpu_count()), most)


def pool(workers: int) -> Pool:
    """So many processes. They are started as they are needed, and anew when one has died."""
    loky: Any = import_module("joblib.externals.loky")
    for name in TRACKERS:  # which let signals in when they start
        import_module(name).ensure_running()

    def executor() -> Any:
        here = (os.getpid(),)
        return loky.get_reusable_executor(max_workers=workers, env=ONE_THREAD, initializer=serve, initargs=here)

    def submit(function: Any, argument: Any) -> Future[Any]:
        with signals_later():
            future: Future[Any] = executor().submit(function, argument)
        return future

    return Pool(submit=submit, workers=workers, stop=lambda: executor().shutdown(wait=False, kill_workers=True))
