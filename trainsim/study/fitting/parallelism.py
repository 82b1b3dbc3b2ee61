"""The model cut into more parts, on the GPUs that there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.scenario.scenario import Scenario
from trainsim.study.explain.options import Trial
from trainsim.study.fitting import ways
from trainsim.study.fitting.cut import recut


@ways.register("tensor parallel")
def tensor_parallel(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Twice the tensor parallelism, within a node; from none, with sequence parallelism."""
    parallel = job.parallel
    tp = 2 * parallel.tp
    if tp > job.cluster.gpus_per_node:
        return
    changes: dict[str, Any] = {"parallel.tp": tp, **_replica(scenario, job)}
    if parallel.tp == 1:
        changes["parallel.sequence_parallel"] = True
    words = " with sequence parallelism" if parallel.tp == 1 else ""
    yield Trial(kind="parallel", title=f"tp {tp}{words}", changes=changes)


@ways.register("sequence parallel")
def sequence_parallel(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Activations between the tensor-parallel parts cut as well."""
    if job.parallel.tp > 1 and not job.parallel.sequence_parallel:
        yield Trial(kind="parallel", title="sequence parallelism", changes={"parallel.sequence_parallel": True})


@ways.register("pipeline parallel")
def pipeline_parallel(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """Twice the pipeline stages; the layers are spread anew."""
    pp = 2 * job.parallel.pp
    if pp > min(job.cluster.ranks, job.model.layers):
        return
    changes: dict[str, Any] = {"parallel.pp": pp, **_replica(scenario, job)}
    if scenario.spec.pipeline.layout is not None:
        changes["pipeline.layout"] = None
    yield Trial(kind="parallel", title=f"pp {pp}", changes=changes)


def _replica(scenario: Scenario, job: Job) -> dict[str, Any]:
    return recut(scenario, job, replica=2 * job.parallel.ranks // job.parallel.dp)


@ways.register("vocabulary parallel")
def vocabulary_parallel(scenario: Scenario, job: Job) -> Iterator[Trial]:
    """The logits spread over all stages."""
    if job.parallel.pp > 1 and not job.pipeline.vocabulary_parallel:
        yield Trial(kind="parallel", title="logits on all stages", changes={"pipeline.vocabulary_parallel": True})
