"""The jobs of a file as scenarios on their own nodes of the one machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainsim.contracts.job import Flap, Job, Slow
from trainsim.documents.catalogue import exists
from trainsim.documents.document import Document
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, TrainsimError, UnknownName
from trainsim.hardware.cluster import Cluster
from trainsim.hardware.placements import placements
from trainsim.jobs.jobs_file import JobEntry, JobsFile
from trainsim.scenario.context import Context
from trainsim.scenario.loading import SCENARIOS, of_several_jobs
from trainsim.scenario.named import find_cluster
from trainsim.scenario.placement import placed_nodes
from trainsim.scenario.scenario import Scenario
from trainsim.units import format_number_of

PATHS = ("topology", "gpu", "collectives")
"""Keys of a cluster that may be paths, which start from the folder of the file that they stand in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job on its nodes: the resolved ``job`` sees what is slow of the machine for everybody."""

    name: str
    scenario: Scenario
    job: Job
    nodes: tuple[int, ...]
    start: float

    @property
    def steps(self) -> int:
        """Its own steps."""
        return self.job.steps


def placed_jobs(file: JobsFile) -> list[PlacedJob]:
    """All jobs of *file*, in their order. Those that name their nodes get them; the others share the rest, one after
    the other. Raises ScenarioError for a node that two jobs want, and what resolving each scenario raises."""
    taken: dict[int, str] = {}
    placed: dict[str, PlacedJob] = {}
    order = sorted(file.jobs, key=_is_free)  # those that name nodes first
    _check_enough(file, order)
    for entry in order:
        one = _placed(file, entry, taken)
        if twice := [node for node in one.nodes if node in taken]:
            message = f"node {twice[0]} already belongs to job {taken[twice[0]]}; a node runs one job"
            key = "nodes" if isinstance(entry.nodes, tuple) else "placement"
            raise file.document.fail((*entry.place, key), message)
        taken |= dict.fromkeys(one.nodes, one.name)
        placed[one.name] = one
    jobs = [placed[entry.name] for entry in file.jobs]
    _one_network(file, jobs)
    return _with_slow_links(jobs)


def _check_enough(file: JobsFile, order: Sequence[JobEntry]) -> None:
    """Raise where jobs ask for more nodes than there are, before a scenario that is fit for fewer says so of itself."""
    first = _scenario(file, order[0], dict(file.cluster))
    with _of_job(order[0]):
        nodes = find_cluster(Context(spec=first.spec, data=first.data, origin=first.origin)).nodes
    busy = len(set(first.spec.cluster.not_on_nodes or ()))
    asked: dict[str, int] = {}
    for entry in order:
        if isinstance(entry.nodes, int) and entry.nodes > (left := nodes - busy - sum(asked.values())):
            asks = f"job {entry.name} asks for {format_number_of(entry.nodes, 'node')}"
            free = f"{max(left, 0)} of {nodes} {'is' if left == 1 else 'are'} free"
            others = "".join(f", job {name} has {number}" for name, number in asked.items())
            others += f", {busy} are among not_on_nodes" if busy else ""
            raise file.document.fail((*entry.place, "nodes"), f"{asks}, and {free}{others}; ask for fewer")
        if entry.nodes is not None:
            asked[entry.name] = entry.nodes if isinstance(entry.nodes, int) else len(entry.nodes)


@contextmanager
def _of_job(entry: JobEntry) -> Iterator[None]:
    """Errors raised inside name the job."""
    try:
        yield
    except TrainsimError as error:
        named, kind = f"job {entry.name}: ", type(error)
        if named in str(error) or kind not in (ScenarioError, InvalidPlan, NotBuilt):
            raise
        raise kind(f"{named}{error}", reason=f"{named}{error.reason}") from None


def _is_free(entry: JobEntry) -> bool:
    """Whether a rule chooses its nodes."""
    return not isinstance(entry.nodes, tuple) and not _is_host_list(entry.placement)


def _is_host_list(placement: Any) -> bool:
    return isinstance(placement, list | tuple) or (isinstance(placement, str) and placement not in placements)


def _placed(file: JobsFile, entry: JobEntry, taken: Mapping[int, str]) -> PlacedJob:
    cluster = dict(file.cluster)
    if _is_free(entry):
        cluster["not_on_nodes"] = sorted({*cluster.get("not_on_nodes", ()), *taken})
    given = {"on_nodes": entry.nodes, "placement": entry.placement}
    cluster |= {key: list(v) if isinstance(v, tuple) else v for key, v in given.items() if v is not None}
    with _of_job(entry):
        scenario = _scenario(file, entry, cluster)
        job = scenario.resolve()
    return PlacedJob(
        name=entry.name,
        scenario=scenario,
        job=job,
        nodes=placed_nodes(job.allocation, job.cluster),
        start=entry.start,
    )


def _scenario(file: JobsFile, entry: JobEntry, cluster: Mapping[str, Any]) -> Scenario:
    """The scenario of a job on the machine of the file, under the job's name."""
    document, origin = _document(file, entry), file.document.origin
    if of_several_jobs(document.data):
        raise file.document.fail((*entry.place, "scenario"), "is a file of several jobs; name the scenario of one")
    anchored = {key: _anchored(value, origin.folder) if key in PATHS else value for key, value in cluster.items()}
    if "placement" in anchored:
        anchored["placement"] = _anchored(anchored["placement"], origin.folder)
    data = {**document.data, "name": entry.name, "cluster": anchored}
    if entry.steps is not None:
        simulation = data.get("simulation")
        data["simulation"] = {**(simulation if isinstance(simulation, Mapping) else {}), "steps": entry.steps}
    said = f"{origin.place(entry.place)}job {entry.name}"
    elsewhere = {**document.origin.elsewhere, ("cluster",): said}
    return Scenario(data, replace(document.origin, elsewhere=elsewhere))


def _document(file: JobsFile, entry: JobEntry) -> Document:
    origin, key = file.document.origin, (*entry.place, "scenario")
    try:
        place = origin.part(key) if isinstance(entry.scenario, Mapping) else origin
        return SCENARIOS.find(entry.scenario, origin=place)
    except UnknownName as error:
        raise file.document.fail(key, str(error)) from None


def _anchored(value: Any, folder: Path) -> Any:
    """*value*, a path in *folder* in full."""
    if isinstance(value, str) and folder != Path() and exists(folder / value):
        return str((folder / value).resolve())
    return value


def _one_network(file: JobsFile, jobs: Sequence[PlacedJob]) -> None:
    """Raise where jobs say different things of the network, of which there is one."""
    for one in jobs:
        if any(isinstance(what, Flap) for what in one.job.what_if):
            raise NotBuilt(f"job {one.name}: what_if.flap is not simulated yet with several jobs; a slow link is")
        if one.job.cluster != jobs[0].job.cluster:
            same = "give all jobs the same faults (what_if)"
            message = f"jobs {jobs[0].name} and {one.name} see different machines; {same}"
            raise file.document.fail(("jobs",), message)
    drawn = {(one.job.jitter.network, one.job.seed) for one in jobs}
    if len(drawn) > 1 and any(network for network, _ in drawn):
        message = "simulation.jitter.network and its seed belong to the machine: give all jobs the same"
        raise file.document.fail(("jobs",), message)


def _with_slow_links(jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
    """*jobs* that all see the links that the scenario of one of them says are slow."""
    slow = tuple(what for one in jobs for what in _slow_links(one.job))
    return [replace(one, job=replace(one.job, what_if=(*_others(one.job), *slow))) for one in jobs]


def _slow_links(job: Job) -> Iterable[Slow]:
    return (what for what in job.what_if if isinstance(what, Slow) and what.links)


def _others(job: Job) -> list[Any]:
    return [what for what in job.what_if if not (isinstance(what, Slow) and what.links)]


def machine(jobs: Sequence[PlacedJob]) -> Cluster:
    """The one that all jobs run on."""
    return jobs[0].job.cluster
