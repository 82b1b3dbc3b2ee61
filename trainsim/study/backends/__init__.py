"""
Who runs the trials of a study, one file per way: this process, processes of this machine, machines of a cluster.

A backend is a function from ``Work`` to answers in any order. It is called by its name, with an address behind ``://``
where it wants one. Nothing about an answer may depend on the backend.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from trainsim.errors import ScenarioError
from trainsim.registry import Registry
from trainsim.study.work import Answers, Work

Backend = Callable[[Work[Any]], Answers[Any]]

backends: Registry[Backend] = Registry("backend", __name__)


def backend_of(name: str, workers: int | None) -> Callable[..., Answers[Any]]:
    """The backend that ``name`` or ``name://address`` means, as a function of ``todo`` and ``keep``.

    Raises UnknownName for one that there is not, and ScenarioError for a name that is no text.

    >>> list(backends)
    ['dask', 'processes', 'ray', 'serial']
    """
    if not isinstance(name, str):
        raise ScenarioError(f"backend={name!r}: wants a name, such as 'processes', or dask://host:port")
    kind, _, address = name.partition("://")
    run = backends[kind]
    return partial(_run, run, workers, address)


def _run(run: Backend, workers: int | None, address: str, todo: Any, keep: Any) -> Answers[Any]:
    return run(Work(todo=todo, keep=keep, workers=workers, address=address))


def needs(library: str, extra: str) -> ScenarioError:
    """The error of a backend whose *library* is not installed."""
    return ScenarioError(f"backend {extra} needs {library}, which is not installed: pip install 'trainsim[{extra}]'")


def without_address(kind: str, work: Work[Any]) -> None:
    """Raises ScenarioError for an address where *kind* has none."""
    if work.address:
        raise ScenarioError(f"backend {kind}://{work.address}: {kind} is this machine and has no address; write {kind}")
