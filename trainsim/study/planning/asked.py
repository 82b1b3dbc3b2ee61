"""What somebody asks of the axes of a plan, checked before any layout is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainsim.documents.origin import key_of, value_at
from trainsim.errors import InvalidPlan, ScenarioError, nearest
from trainsim.scenario.changes import is_within
from trainsim.scenario.scenario import Scenario
from trainsim.study.designs.design import checked_path, list_of
from trainsim.study.planning.own import any_job

Grid = Mapping[str, Sequence[Any]]

EMPTY = ("parallel.etp",)
"""Axes with a value for "as the others"."""


OF_A_PLAN = {
    "training.gradient_accumulation": "follows from the sequences per step, the micro-batch and the replicas of each "
    "layout; give values of training.micro_batch or parallel.dp, or other sequences per step, such as "
    "--set training.global_batch=1024",
    "simulation.detail": "a plan searches with whole passes as one piece, and lists in the scenario's own detail, "
    "which --set changes",
    "simulation.steps": "a plan searches with one step, and lists with as many as the scenario has, which "
    "--set changes",
}
"""Fields that no layout of a plan has a say in, and where they come from."""


def check_kept(keep: Sequence[str], grid: Grid, axes: Sequence[str]) -> None:
    """Raises ScenarioError for an axis to keep that is none, or that has values in *grid* as well."""
    for path in keep:
        if path not in axes:
            near = nearest(path, axes)
            hint = f"did you mean {near!r}?" if near else f"axes are {', '.join(axes)}"
            raise ScenarioError(f"keep {path}: no axis of a plan; {hint}")
        if path in grid:
            raise ScenarioError(f"keep {path}: has values of its own in the grid; leave out one of the two")


def checked_grid(scenario: Scenario, grid: Grid, axes: Sequence[str]) -> dict[str, list[Any]]:
    """*grid* with numbers read as a scenario reads them.

    Raises ScenarioError for what is no list, for a field that a plan sets itself, for a value that no scenario can have
    there, and for one with which a layout would train another job, or on another number of GPUs.
    """
    for path in grid:
        _check_free(checked_path(path), axes)
    lists = {checked_path(path): list_of(path, values) for path, values in grid.items()}
    out = {path: [_read(scenario, path, value, axes) for value in values] for path, values in lists.items()}
    here = sizes_of(scenario)
    for path, values in out.items():
        for value in values if path not in axes else ():
            _check_size(scenario, path, value, here)
    return out


def _check_free(path: str, axes: Sequence[str]) -> None:
    """Raises ScenarioError for a field that a plan sets itself, or that holds an axis or is a part of one."""
    reason = OF_A_PLAN.get(path)
    if inner := [axis for axis in axes if axis != path and is_within(axis, path)]:
        reason = f"a plan searches {', '.join(inner)} in it; give values of one of these, or of another field"
    if axis := next((axis for axis in axes if axis != path and is_within(path, axis)), None):
        reason = f"a plan searches {axis}; give whole values of that"
    if reason:
        raise ScenarioError(f"grid {path}: {reason}")


def _read(scenario: Scenario, path: str, value: Any, axes: Sequence[str]) -> Any:
    read = value_at(scenario.replace({path: value}).spec.model_dump(), key_of(path))
    if path in axes and read is None and path not in EMPTY:
        raise ScenarioError(f"{path} = null: an axis of a plan needs values; leave it out for the default ones")
    return read if isinstance(read, int) else value


def sizes_of(scenario: Scenario) -> dict[str, int]:
    """What all layouts of a plan have in common, by its name."""
    job, _ = any_job(scenario)
    return {
        "GPUs": job.parallel.ranks,
        "sequences per step": scenario.spec.training.global_batch or job.training.global_batch,
        "tokens per sequence": job.training.sequence_length,
        "layers": job.model.layers,
    }


def _check_size(scenario: Scenario, path: str, value: Any, here: Mapping[str, int]) -> None:
    try:
        there = sizes_of(scenario.replace({path: value}))
    except InvalidPlan:  # alone; whether it goes with other values is found out when they are resolved together
        return
    for name, size in there.items():
        if size != here[name]:
            raise ScenarioError(
                f"{path} = {value}: {size:,} {name} instead of {here[name]:,}; the layouts of one plan have the same, "
                f"so plan it by itself, with --set {path}={value}"
            )
