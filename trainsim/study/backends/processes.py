"""Processes of this machine, which stay for the next study of the same program."""

from __future__ import annotations

from concurrent.futures import Future
from importlib import import_module
from typing import Any, TypeVar

from trainsim.study.attempt import check_code
from trainsim.study.backends import backends, starts, without_address
from trainsim.study.batches import Pool, in_batches
from trainsim.study.code import code_digest
from trainsim.study.interrupts import ignore_interrupts
from trainsim.study.work import Answers, StudyWork

T = TypeVar("T")

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Processes that fill the cores need no threads beside them."""


@backends.register("processes")
def processes(work: StudyWork[T]) -> Answers[T]:
    """The answers of as many processes as *work* says, or as there are cores."""
    from joblib import cpu_count

    without_address("processes", work)
    if work.todo:
        yield from in_batches(pool(min(work.workers or int(cpu_count()), len(work.todo))), work)


def start(workers: int | None, trials: int) -> None:
    """Let processes begin to import what they need, which takes as long as many points."""
    from joblib import cpu_count

    count = min(workers or int(cpu_count()), trials)
    submit = pool(count).submit
    for _ in range(count):
        submit(check_code, code_digest())


starts["processes"] = start


def pool(workers: int) -> Pool:
    """So many processes. They are started as they are needed, and anew when one has died."""
    loky: Any = import_module("joblib.externals.loky")

    def executor() -> Any:
        return loky.get_reusable_executor(max_workers=workers, env=ONE_THREAD, initializer=ignore_interrupts)

    def submit(function: Any, argument: Any) -> Future[Any]:
        future: Future[Any] = executor().submit(function, argument)
        return future

    return Pool(submit=submit, workers=workers, stop=lambda: executor().shutdown(wait=False, kill_workers=True))
