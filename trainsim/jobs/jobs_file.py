"""The file of several jobs: one machine, and the scenario, the nodes and the start of each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainsim.documents.document import Document
from trainsim.documents.origin import Key
from trainsim.documents.part import DocumentPart
from trainsim.errors import ScenarioError, UnknownName, shorten
from trainsim.scenario.loading import SCENARIOS, of_several_jobs
from trainsim.scenario.schema import ScenarioSpec
from trainsim.units import parse_time

KEYS, JOB_KEYS = (
    ("name", "description", "cluster", "jobs"),
    ("name", "scenario", "nodes", "placement", "start", "steps"),
)
OF_A_JOB = {"on_nodes": "nodes", "placement": "placement"}
"""Keys of a scenario's cluster that each job says for itself, and how."""
MOST_STEPS, LATEST = 10_000, 1e6
MOST_NAMED = 4
"""Jobs that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    """A job as the file has it: its scenario (a name, a path or a mapping), how many nodes or which, and the rule or
    host list that places it; seconds at which it starts, and its own steps (None: as its scenario says)."""

    name: str
    scenario: str | Mapping[str, Any]
    nodes: int | tuple[int, ...] | None
    placement: Any
    start: float
    steps: int | None
    place: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsFile:
    """Several jobs and the machine that they share."""

    name: str
    document: Document
    cluster: Mapping[str, Any]
    jobs: tuple[JobEntry, ...]


def read_jobs(spec: str | Path | Mapping[str, Any], changes: Mapping[str, Any]) -> JobsFile:
    """The jobs of a file (by name or path) or of a mapping, with other values at dotted paths (*changes*), in which a
    job is its number or its name. Raises ScenarioError that names the line and the key."""
    document = _changed(SCENARIOS.find(spec), changes)
    if not of_several_jobs(document.data):
        raise document.fail(
            (), "has no list of jobs; a jobs file has `cluster:` and `jobs:`, a scenario is run as it is"
        )
    top = DocumentPart.open(document, (), document.data, KEYS)
    cluster: Mapping[str, Any] = top.value("cluster", {}, _mapping)
    if "topology" not in cluster:
        raise top.fail("cluster", "expected the machine of all jobs, for example {topology: dgx_h100, nodes: 8}")
    for key, own in OF_A_JOB.items():
        if key in cluster:
            raise document.fail(("cluster", key), f"every job has its own nodes; give it as `{own}` under jobs")
    entries: list[object] = top.value("jobs", [], _list)
    jobs = tuple(_entry(document, k, entry) for k, entry in enumerate(entries))
    for k, job in enumerate(jobs):
        if job.name in {other.name for other in jobs[:k]}:
            raise document.fail(("jobs", k), f"two jobs are called {shorten(job.name)}; give each a name of its own")
    name = str(document.data.get("name") or document.name)
    return JobsFile(name=name, document=document, cluster=cluster, jobs=jobs)


def _changed(document: Document, changes: Mapping[str, Any]) -> Document:
    data, keys = deepcopy(dict(document.data)), []
    for path, value in changes.items():
        *parts, last = path.split(".")
        _check_of_file(data, path, parts)
        here: Any = data
        key: Key = ()
        for part in parts:
            key = (*key, _place(here, part, path))
            here = _inner(here, key[-1])
        key = (*key, _place(here, last, path))
        here[key[-1]] = value
        keys.append(key)
    return replace(document, data=data, origin=document.origin.without(keys))


def _check_of_file(data: Mapping[str, Any], path: str, parts: Sequence[str]) -> None:
    """Raise for a field of a scenario, of which each job has one; *data* is read later."""
    if parts and parts[0] not in KEYS and parts[0] in ScenarioSpec.model_fields and isinstance(data.get("jobs"), list):
        names = [job.get("name", k) if isinstance(job, Mapping) else k for k, job in enumerate(data["jobs"])]
        ways = [f"jobs.{name}.scenario.{path}" for name in names[:MOST_NAMED]]
        more = ", ..." if len(names) > MOST_NAMED else ""
        raise ScenarioError(f"{path}: each job has a scenario of its own; set {', '.join(ways)}{more}")


def _inner(here: Any, key: str | int) -> Any:
    """The mapping or the list at *key*, made where there is none."""
    if isinstance(here, dict) and (here.get(key) is None or not isinstance(here[key], dict | list)):
        here[key] = {"base": here[key]} if key == "scenario" and isinstance(here.get(key), str) else {}
    return here[key]


def _place(here: Any, part: str, path: str) -> str | int:
    """Where *part* is: a key, or the number of a job, which may be called so."""
    if not isinstance(here, list):
        return part
    named = [k for k, job in enumerate(here) if isinstance(job, Mapping) and job.get("name") == part]
    numbers = named or [int(part)] if named or part.isdecimal() else []
    if not numbers or numbers[0] >= len(here):
        known = [str(job.get("name", k)) for k, job in enumerate(here) if isinstance(job, Mapping)]
        raise ScenarioError(f"{path}: {UnknownName('job', part, known)}")
    return numbers[0]


def _entry(document: Document, k: int, data: object) -> JobEntry:
    part = DocumentPart.open(document, ("jobs", k), data, JOB_KEYS)
    scenario = part.value("scenario", None, _scenario)
    if scenario is None:
        raise document.fail(("jobs", k), "expected a scenario: a name, a path or a mapping with a model")
    usual = Path(scenario).stem if isinstance(scenario, str) else f"job {k + 1}"
    name = part.text("name", usual)
    return JobEntry(
        name=name,
        scenario=scenario,
        nodes=part.value("nodes", None, lambda value: _nodes(value, name)),
        placement=part.data.get("placement"),
        start=part.quantity("start", parse_time, 0.0, low=0.0, high=LATEST),
        steps=part.integer("steps", high=MOST_STEPS) if "steps" in part.data else None,
        place=("jobs", k),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise ScenarioError(f"expected a mapping (key: value lines), not {shorten(value)}")


def _list(value: object) -> list[object]:
    if isinstance(value, list | tuple) and value:
        return list(value)
    raise ScenarioError("expected a list of jobs, each with a scenario")


def _scenario(value: object) -> str | Mapping[str, Any] | None:
    if isinstance(value, str | Mapping):
        return value
    raise ScenarioError(f"expected a name, a path or a mapping, not {shorten(value)}")


def _nodes(value: object, name: str) -> int | tuple[int, ...] | None:
    which = isinstance(value, list | tuple)
    numbers: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(n, bool) or not isinstance(n, int) or n < (0 if which else 1) for n in numbers):
        raise ScenarioError(f"job {name}: expected how many nodes, 4, or which, [0, 1], not {shorten(value)}")
    return tuple(numbers) if which else int(numbers[0])
