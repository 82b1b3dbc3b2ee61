"""
Changes that people make to a training job, one file per idea: to take less memory, less time, or either.

A way is a pure function of a scenario and its job. It gives the changes of the scenario that could help; it need not
know whether they go together with the rest, for the scenario itself says so when it is run. ``what_fits`` tries those
for memory, ``explain`` those for time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainsim.contracts.job import Job
from trainsim.registry import Registry
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change

MEMORY, TIME = "memory", "time"
"""What a way may save."""

Suggest = Callable[[Scenario, Job], Iterator[Change]]


@dataclass(frozen=True, slots=True)
class Way:
    """What it may save, of MEMORY and TIME, and the function that suggests changes."""

    goals: frozenset[str]
    suggest: Suggest


ways: Registry[Way] = Registry("way to change a job", __name__)


def way(name: str, *goals: str) -> Callable[[Suggest], Suggest]:
    """Register a function that suggests changes for *goals*."""

    def add(suggest: Suggest) -> Suggest:
        ways.register(name)(Way(frozenset(goals), suggest))
        return suggest

    return add


def suggestions(scenario: Scenario, goal: str) -> Iterator[Change]:
    """All changes that could help *scenario* to *goal*."""
    job = scenario.resolve()
    for known in ways.values():
        if goal in known.goals:
            yield from known.suggest(scenario, job)
