"""Dask: processes of this machine, or the cluster behind an address such as ``dask://host:8786``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from trainsim.errors import ScenarioError
from trainsim.study.backends import backends, needs
from trainsim.study.batches import Pool, through
from trainsim.study.interrupts import children_ignore_interrupts
from trainsim.study.work import Answers, StudyWork

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds to wait for a scheduler and its first worker."""


@backends.register("dask")
def dask(work: StudyWork[T]) -> Answers[T]:
    """The answers of a cluster's workers. Raises ScenarioError without Dask, or where no scheduler answers."""
    return through(_pool, work)


@contextmanager
def _pool(work: StudyWork[Any]) -> Iterator[Pool]:
    try:
        library: Any = import_module("distributed")
    except ImportError:
        raise needs("distributed", "dask") from None
    with _client(library, work) as client:
        executor = client.get_executor(pure=False)
        count = sum(client.nthreads().values())
        yield Pool(
            submit=executor.submit,
            workers=min(count, work.workers or count),
            stop=lambda: executor.shutdown(wait=False),
            deaths=(library.KilledWorker,),
        )


@contextmanager
def _client(library: Any, work: StudyWork[Any]) -> Iterator[Any]:
    if not work.address:
        with children_ignore_interrupts():
            cluster = library.LocalCluster(n_workers=work.workers, threads_per_worker=1, dashboard_address=None)
        with cluster, library.Client(cluster) as client:
            yield client
        return
    try:
        client = library.Client(f"tcp://{work.address}", timeout=PATIENCE)
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, ValueError) as error:  # a TimeoutError is an OSError
        raise ScenarioError(
            f"backend dask://{work.address}: no scheduler of Dask with workers there: {error}"
        ) from None
    with client:
        yield client
