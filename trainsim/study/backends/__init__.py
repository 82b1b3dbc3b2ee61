"""
Who runs the trials of a study, one file per way: this process, processes of this machine, machines of a cluster.

A backend is a function from ``StudyWork`` to answers in any order. It is called by its name, with an address behind ``://``
where it wants one. Nothing about an answer may depend on the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainsim.errors import ScenarioError
from trainsim.registry import Registry
from trainsim.result.result import Result
from trainsim.study.attempt import Prepared
from trainsim.study.work import Answers, StudyWork

Backend = Callable[[StudyWork[Any]], Answers[Any]]

backends: Registry[Backend] = Registry("backend", __name__)


starts: dict[str, Callable[[int | None, int], None]] = {}
"""By name of a backend: what makes its workers ready, of how many and for how many trials, while trials are read."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A backend with its number of workers and its address."""

    kind: str
    address: str
    workers: int | None

    def start(self, trials: int) -> None:
        """Let workers get ready meanwhile for so many *trials*, if there are some that take their time for it."""
        if self.kind in starts and not self.address:
            starts[self.kind](self.workers, trials)

    def run(self, todo: Sequence[Prepared], keep: Callable[[Result], Any]) -> Answers[Any]:
        """The answers to *todo*."""
        return backends[self.kind](StudyWork(todo=todo, keep=keep, workers=self.workers, address=self.address))


def backend_of(name: str, workers: int | None) -> Elsewhere:
    """The backend that ``name`` or ``name://address`` means.

    Raises UnknownName for one that there is not, and ScenarioError for a name that is no text.

    >>> list(backends)
    ['dask', 'processes', 'ray', 'serial']
    """
    if not isinstance(name, str):
        raise ScenarioError(f"backend={name!r}: expected a name, such as 'processes', or dask://host:port")
    kind, _, address = name.partition("://")
    return Elsewhere(backends.canonical(kind), address, workers)


def needs(library: str, extra: str) -> ScenarioError:
    """The error of a backend whose *library* is not installed."""
    return ScenarioError(f"backend {extra} needs {library}, which is not installed: pip install 'trainsim[{extra}]'")


def without_address(kind: str, work: StudyWork[Any]) -> None:
    """Raises ScenarioError for an address where *kind* has none."""
    if work.address:
        raise ScenarioError(f"backend {kind}://{work.address}: {kind} is this machine and has no address; write {kind}")
