"""What came out for several jobs on one machine, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.errors import UnknownName
from trainsim.report.intervals import Intervals
from trainsim.result.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JobOutcome:
    """One job of several: seconds of the mean of its own ``steps``, alone on its nodes and together with the others.

    ``alone`` and ``together`` are the analyses of all the steps that it did, which are more than its own where others
    took longer; the times of both begin at its start.
    """

    name: str
    nodes: tuple[int, ...]
    start_s: float
    steps: int
    alone_s: float
    together_s: float
    alone: Result
    together: Result

    @property
    def slowdown(self) -> float:
        """How many times as long a step takes as alone."""
        return self.together_s / self.alone_s

    def to_dict(self) -> dict[str, Any]:
        """Plain data; SI units."""
        return {
            "name": self.name,
            "nodes": list(self.nodes),
            "start_s": self.start_s,
            "steps": self.steps,
            "simulated_steps": self.together.job.steps,
            "step_alone_s": self.alone_s,
            "step_together_s": self.together_s,
            "slowdown": self.slowdown,
            "scenario": self.together.scenario,
        }

    def __repr__(self) -> str:
        return f"<JobOutcome {self.name}: step {self.alone_s:.4g} s alone, {self.together_s:.4g} s together>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLink:
    """A link that two jobs were on at one time: when, and when more was asked of it than it has."""

    name: str
    shared: Intervals
    full: Intervals

    @property
    def shared_s(self) -> float:
        """Seconds in which both were on it."""
        return self.shared.total

    @property
    def full_s(self) -> float:
        """Seconds in which more was asked of it than it has."""
        return self.full.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """Two jobs that share links: seconds in which both were on one of them, and in which one of these was asked for
    more than it has. ``traffic`` says with what: kind of communication of the first, of the second, seconds on one link
    at one time, and those of them when it was asked for too much. ``links`` are those that were shared longest,
    first."""

    first: str
    second: str
    shared_s: float
    full_s: float
    traffic: tuple[tuple[str, str, float, float], ...]
    links: tuple[SharedLink, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; SI units."""
        return {
            "jobs": [self.first, self.second],
            "shared_s": self.shared_s,
            "full_s": self.full_s,
            "traffic": [{"kinds": [a, b], "shared_s": shared, "full_s": full} for a, b, shared, full in self.traffic],
            "links": [{"name": k.name, "shared_s": k.shared_s, "full_s": k.full_s} for k in self.links],
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JobsResult:
    """Several jobs on one machine: what each takes, and who disturbs whom until all are through with their own steps,
    after ``duration`` seconds."""

    name: str
    jobs: tuple[JobOutcome, ...]
    disturbances: tuple[Disturbance, ...]
    duration: float

    def __getitem__(self, name: str) -> JobOutcome:
        """The job called *name*. Raises UnknownName."""
        for job in self.jobs:
            if job.name == name:
                return job
        raise UnknownName("job", name, [job.name for job in self.jobs])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data with stable keys: what ``jobs.json`` holds."""
        return {
            "name": self.name,
            "duration_s": self.duration,
            "jobs": [job.to_dict() for job in self.jobs],
            "disturbances": [pair.to_dict() for pair in self.disturbances],
        }

    def gantt(self) -> Figure:
        """A matplotlib figure with the lanes of every job over the same seconds."""
        from trainsim.jobs.picture import gantt

        return gantt(self)

    def save(self, directory: str | Path) -> tuple[Path, ...]:
        """Write jobs.json, gantt.png, and the files of each job's run together into a folder of its name."""
        from trainsim.jobs.files import save

        return save(self, Path(directory))

    def __repr__(self) -> str:
        parts = ", ".join(f"{job.name} x{job.slowdown:.3f}" for job in self.jobs)
        return f"<JobsResult {self.name}: {parts}>"

    def __rich__(self) -> RenderableType:
        from trainsim.jobs.sections import sections
        from trainsim.tables.terminal import rich_sections

        return rich_sections(sections(self))

    def _repr_html_(self) -> str:
        from trainsim.jobs.sections import sections
        from trainsim.tables.page import card

        return card(sections(self), self.name)
