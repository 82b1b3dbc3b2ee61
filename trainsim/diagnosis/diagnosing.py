"""``ts.diagnose``: an operation table in, what slowed the job down out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path

import numpy as np

from trainsim.diagnosis.causes import FoundCause, causes
from trainsim.diagnosis.diagnosis import Diagnosis, StepTimes, WorkerScore
from trainsim.diagnosis.evidence import Evidence
from trainsim.diagnosis.job_replay import JobReplay, Selection
from trainsim.diagnosis.operations import Floats, OperationTable
from trainsim.diagnosis.reading import read_operations
from trainsim.diagnosis.structure import StepStructure
from trainsim.diagnosis.thresholds import threshold
from trainsim.errors import InvalidData
from trainsim.units import format_time

Tell = Callable[[str], None]
"""Is told what is being done."""


def diagnose(paths: str | Path | Sequence[str | Path] | OperationTable, *, meta: str | Path | None = None) -> Diagnosis:
    """What slowed a measured job down: its operations replayed as measured, in the ideal case and in between.

    *paths* are operation tables in Parquet or CSV (docs/diagnose.md), of one job, or a table that is there already;
    *meta* (YAML) says how the job is laid out: without it the meta file beside the first table, or what the operations
    tell. Raises InvalidData for files that are no operation tables, and for jobs of which no step can be replayed.
    """
    if isinstance(paths, OperationTable):
        if meta is not None:
            raise InvalidData(f"meta={str(meta)!r}: only for files; this table already has the job's layout")
        return diagnosed(paths)
    return diagnosed(read_operations(paths, meta=meta))


def diagnosed(table: OperationTable, tell: Tell = lambda phase: None) -> Diagnosis:
    """The diagnosis of *table*; *tell* is told what is being done. Raises InvalidData."""
    tell("reconstructing dependencies")
    replay = JobReplay.of(table)
    measured, without = replay.measured_steps, replay.step_times(replay.own)
    ideal = replay.step_times(replay.ideal)
    tell("replaying operations, stages and replicas")
    by_stage = {stage: replay.only(of_stage(stage)) for stage in np.unique(table.stage).tolist()}
    by_replica = {rank: replay.only(of_replica(rank)) for rank in np.unique(table.dp_rank).tolist()}
    scores = tuple(WorkerScore(*place, min(by_replica[place[0]], by_stage[place[2]])) for place in table.workers)
    worst = sorted(scores, key=lambda score: -score.slowdown)[: ceil(threshold("worst_workers") * len(scores))]
    tell("looking for causes")
    lost = float(measured.mean()) - replay.ideal_step
    found = _found(replay, lost)
    return Diagnosis(
        name=table.name, shape=table.shape, operations_replayed=sum(part.rows.size for part in replay.parts),
        slowdown=replay.slowdown, launch_slowdown=replay.launch_slowdown,
        by_operation=_sorted(replay.by_operation), by_stage=by_stage, by_replica=by_replica, by_worker=scores,
        last_stage_share=replay.share(replay.without(of_stage(table.shape.pp - 1))),
        worst_workers_share=replay.share(replay.without(of_workers(worst))), worst_workers=tuple(worst),
        step_s=float(measured.mean()), step_without_launch_delay_s=replay.step, ideal_step_s=replay.ideal_step,
        steps=tuple(map(StepTimes, replay.steps, measured.tolist(), without.tolist(), ideal.tolist())),
        found=found, cause=_verdict(replay, float(measured.mean()), found),
        remarks=(*replay.remarks, *_contradictions(replay.steps, measured, without)), replay=replay,
    )  # fmt: skip


def of_stage(stage: int) -> Selection:
    """All operations of a stage."""
    return lambda structure: structure.stage == stage


def of_replica(dp_rank: int) -> Selection:
    """All operations of a dp_rank."""
    return lambda structure: structure.dp_rank == dp_rank


def of_workers(some: Sequence[WorkerScore]) -> Selection:
    """All operations of some workers."""
    places = {score[:3] for score in some}

    def chosen(structure: StepStructure) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([place in places for place in structure.workers], bool)[structure.worker]

    return chosen


def _sorted(values: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(values.items(), key=lambda pair: -pair[1]))


def _found(replay: JobReplay, lost: float) -> tuple[FoundCause, ...]:
    """All causes worth a line, the largest first."""
    evidence = Evidence(replay)
    least = max(threshold("told") * lost, threshold("least_saved") * replay.ideal_step)
    some = (look(evidence) for look in causes.values())
    return tuple(sorted((c for c in some if c is not None and c.saved >= least > 0), key=lambda c: -c.saved))


def _contradictions(steps: Sequence[int], measured: Floats, replayed: Floats) -> list[str]:
    """A remark if operations take longer than the steps that they are part of."""
    wrong = np.flatnonzero(replayed > threshold("longer_than_measured") * measured)
    if not wrong.size:
        return []
    k = int(wrong[np.argmax(replayed[wrong] - measured[wrong])])
    return [
        f"start_ts and duration contradict each other in {wrong.size} of {len(steps)} steps: the operations of "
        f"step {steps[k]} need {format_time(replayed[k])}, but it ended after {format_time(measured[k])}; both columns "
        "are in seconds"
    ]


def _verdict(replay: JobReplay, measured: float, found: tuple[FoundCause, ...]) -> str:
    """The sentence that names the cause."""
    limit, times = threshold("straggling"), f"{replay.slowdown:.2f} times"
    if max(replay.slowdown, replay.launch_slowdown) < limit:
        text = f"No straggler: a step takes {times} as long as the ideal one; a job counts as slow from {limit:g}."
        return f"{text} The largest part: {found[0].sentence}." if found else text
    if not found:
        name, most_of_it = max(replay.by_operation.items(), key=lambda pair: pair[1])
        most = f"mostly because of {name} ({most_of_it:.2f})"
        return f"No single cause: a step takes {times} as long as the ideal one, {most}."
    first = found[0]
    text = first.sentence[0].upper() + first.sentence[1:]
    long = max(measured, replay.step)
    part = first.saved / (long - replay.ideal_step)
    gain = f"without it a step would take {format_time(long - first.saved)} instead of {format_time(long)}"
    return f"{text}. This is {min(part, 1.0):.0%} of the lost time: {gain}."
