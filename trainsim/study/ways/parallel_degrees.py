"""The model cut into more or fewer parts, on the GPUs that there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.study.trial import Change
from trainsim.study.ways import MEMORY, TIME, way
from trainsim.study.ways.kept_batch import keeping_batch

PARALLEL = "parallel"


@way("more tensor parallelism", MEMORY, TIME)
def more_tensor_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Twice the tensor parallelism, within a node; from none, with sequence parallelism."""
    now = job.parallel.tp
    if 2 * now > job.cluster.gpus_per_node:
        return
    values: dict[str, Any] = {"parallel.tp": 2 * now, **_of_replica(scenario, job, 2.0)}
    if now == 1:
        values["parallel.sequence_parallel"] = True
    words = " with sequence parallelism" if now == 1 else ""
    yield Change(kind=PARALLEL, title=f"tp {2 * now}{words}", values=values)


@way("less tensor parallelism", TIME)
def less_tensor_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Half of the tensor parallelism; without any there is no sequence parallelism."""
    now = job.parallel.tp
    if now % 2:
        return
    values: dict[str, Any] = {"parallel.tp": now // 2, **_of_replica(scenario, job, 0.5)}
    if now == 2 and job.parallel.sequence_parallel:
        values["parallel.sequence_parallel"] = False
    yield Change(kind=PARALLEL, title=f"tp {now // 2}", values=values)


@way("sequence parallelism", MEMORY, TIME)
def sequence_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Activations between the tensor-parallel parts cut as well."""
    if job.parallel.tp > 1 and not job.parallel.sequence_parallel:
        yield Change(kind=PARALLEL, title="sequence parallelism", values={"parallel.sequence_parallel": True})


@way("more pipeline stages", MEMORY, TIME)
def more_stages(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Twice the pipeline stages; the layers are spread anew."""
    pp = 2 * job.parallel.pp
    if pp <= min(job.parallel.ranks, job.model.layers):
        yield _stages(scenario, job, pp, 2.0)


@way("fewer pipeline stages", TIME)
def fewer_stages(scenario: Scenario, job: Job) -> Iterator[Change]:
    """Half of the pipeline stages; without any there is no schedule to choose."""
    now = job.parallel.pp
    if now % 2 == 0:
        yield _stages(scenario, job, now // 2, 0.5)


@way("logits on all stages", MEMORY, TIME)
def vocabulary_parallelism(scenario: Scenario, job: Job) -> Iterator[Change]:
    """The logits spread over all stages."""
    if job.parallel.pp > 1 and not job.pipeline.vocabulary_parallel:
        yield Change(kind=PARALLEL, title="logits on all stages", values={"pipeline.vocabulary_parallel": True})


def _stages(scenario: Scenario, job: Job, pp: int, factor: float) -> Change:
    values: dict[str, Any] = {"parallel.pp": pp, **_of_replica(scenario, job, factor)}
    spec = scenario.spec.pipeline
    if spec.layout is not None:
        values["pipeline.layout"] = None
    if pp == 1:
        plain = {"schedule": "1f1b", "chunks": 1, "group": None, "vocabulary_parallel": False}
        values |= {f"pipeline.{key}": value for key, value in plain.items() if key in spec.model_fields_set}
    return Change(kind=PARALLEL, title=f"pp {pp}", values=values)


def _of_replica(scenario: Scenario, job: Job, factor: float) -> dict[str, Any]:
    """What keeps the batch when a replica takes *factor* as many GPUs."""
    return keeping_batch(scenario, job, replica=max(int(factor * (job.parallel.ranks // job.parallel.dp)), 1))
