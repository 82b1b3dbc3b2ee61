"""A diagnosis: how much slower a job is than it could be, where that comes from, and what is known of the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainsim.diagnosis.causes import FoundCause
from trainsim.diagnosis.job_replay import JobReplay
from trainsim.diagnosis.operations import JobShape

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType

FILES = {"result": "diagnosis.json", "heat map": "heat_map.png", "timeline": "timeline.png"}
"""What ``Diagnosis.save`` writes."""


class StepTimes(NamedTuple):
    """One step in seconds: as measured, without launch delays, and in the ideal case."""

    step: int
    measured: float
    without_launch_delay: float
    ideal: float


class WorkerScore(NamedTuple):
    """How much slower the job gets by a worker: the smaller of what its dp_rank and what its stage cause."""

    dp_rank: int
    lane: int
    stage: int
    slowdown: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Diagnosis:
    """What slowed a job down. Slowdowns are the mean step over the mean ideal step (1: none); times in seconds.

    ``by_operation``, ``by_stage`` and ``by_replica`` say what some operations cause alone, everything else ideal.
    ``last_stage_share`` and ``worst_workers_share`` are the parts of the slowdown that go when the last stage, or the
    slowest 3 % of workers, take the ideal time (above 1: more than all). ``found`` are causes, the largest first,
    ``cause`` is the sentence that names it. ``remarks`` say what was left out.
    """

    name: str
    shape: JobShape
    operations_replayed: int
    slowdown: float
    launch_slowdown: float
    by_operation: Mapping[str, float]
    by_stage: Mapping[int, float]
    by_replica: Mapping[int, float]
    by_worker: tuple[WorkerScore, ...]
    last_stage_share: float
    worst_workers_share: float
    worst_workers: tuple[WorkerScore, ...]
    step_s: float
    step_without_launch_delay_s: float
    ideal_step_s: float
    steps: tuple[StepTimes, ...]
    found: tuple[FoundCause, ...]
    cause: str
    remarks: tuple[str, ...] = ()
    replay: JobReplay = field(repr=False)

    @property
    def suggestions(self) -> tuple[str, ...]:
        """What would help, the most first."""
        return tuple(text for one in self.found for text in one.suggestions)

    def share(self, seconds: float) -> float:
        """*seconds* of a step as a part of all that a step takes longer than the ideal one; 0 where it does not."""
        lost = self.step_s - self.ideal_step_s
        return seconds / lost if lost > 0 else 0.0

    def table(self, of: str) -> DataFrame:
        """A table for pandas, *of* ``operations``, ``stages``, ``replicas``, ``workers``, ``steps`` or ``causes``."""
        from pandas import DataFrame

        from trainsim.errors import UnknownName

        tables: dict[str, Any] = {
            "operations": _named("operation", self.by_operation),
            "stages": _named("stage", self.by_stage),
            "replicas": _named("dp_rank", self.by_replica),
            "workers": [worker._asdict() for worker in self.by_worker],
            "steps": [step._asdict() for step in self.steps],
            "causes": [
                {"cause": c.kind, "saved_s": c.saved, "share": self.share(c.saved), "words": c.sentence}
                for c in self.found
            ],
        }
        if of not in tables:
            raise UnknownName("table of a diagnosis", of, tables)
        return DataFrame(tables[of])

    def heat_map(self) -> Figure:
        """A matplotlib figure of the slowdown by worker: a row per dp_rank, a column per stage."""
        from trainsim.diagnosis.heat_map import heat_map

        return heat_map(self)

    def gantt(self, step: int | None = None) -> Figure:
        """A matplotlib figure of a *step* (None: one that takes about the mean time), replayed without launch delays,
        above the ideal one, on the same time axis. Raises UnknownName for a step that is not there."""
        from trainsim.diagnosis.two_timelines import two_timelines

        return two_timelines(self, step)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; times in seconds. ``launch_slowdown`` is None if steps are launch delays alone."""
        return {
            "name": self.name,
            "shape": asdict(self.shape) | {"gpus": self.shape.gpus},
            "operations": self.operations_replayed,
            "slowdown": self.slowdown,
            "launch_slowdown": self.launch_slowdown if isfinite(self.launch_slowdown) else None,
            "by_operation": dict(self.by_operation),
            "by_stage": {str(stage): value for stage, value in self.by_stage.items()},
            "by_replica": {str(rank): value for rank, value in self.by_replica.items()},
            "by_worker": [worker._asdict() for worker in self.by_worker],
            "last_stage_share": self.last_stage_share,
            "worst_workers_share": self.worst_workers_share,
            "worst_workers": [worker._asdict() for worker in self.worst_workers],
            "step_s": self.step_s,
            "step_without_launch_delay_s": self.step_without_launch_delay_s,
            "ideal_step_s": self.ideal_step_s,
            "steps": {str(one.step): {"step_s": one.measured, "step_without_launch_delay_s": one.without_launch_delay,
                                      "ideal_step_s": one.ideal} for one in self.steps},
            "cause": self.cause,
            "causes": [
                {"kind": c.kind, "saved_s": c.saved, "share": self.share(c.saved), "words": c.sentence,
                 "suggestions": list(c.suggestions)}
                for c in self.found
            ],
            "suggestions": list(self.suggestions),
            "remarks": list(self.remarks),
        }  # fmt: skip

    def save(self, directory: str | Path) -> tuple[Path, ...]:
        """Write diagnosis.json, heat_map.png and timeline.png into *directory*; their paths."""
        import json

        from trainsim.report.files import save_pictures

        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        result, heat, timeline = (folder / name for name in FILES.values())
        result.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        save_pictures(self.heat_map(), [heat])
        save_pictures(self.gantt(), [timeline])
        return result, heat, timeline

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.name}: slowdown {self.slowdown:.3f}. {self.cause}>"

    def __rich__(self) -> RenderableType:
        from trainsim.diagnosis.sections import sections_of
        from trainsim.tables.terminal import rich_sections

        return rich_sections(sections_of(self))

    def _repr_html_(self) -> str:
        from trainsim.diagnosis.sections import sections_of
        from trainsim.tables.page import card

        return card(sections_of(self))


def _named(what: str, values: Mapping[Any, float]) -> Sequence[Mapping[str, Any]]:
    return [{what: key, "slowdown": value} for key, value in values.items()]
