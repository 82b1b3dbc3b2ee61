"""Modes of training that change what is launched or kept, and what each of them does not go together with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainsim.contracts.job import Job
from trainsim.errors import NotBuilt
from trainsim.frameworks import Framework
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context

GRAPHS, LOGITS = "training.cuda_graphs", "training.kept_logits"


def with_graphs(context: Context, framework: Framework) -> Framework:
    """*framework* with CUDA graphs or without, if the scenario says which."""
    given = context.spec.training.cuda_graphs
    if given is None or given == framework.host.cuda_graph:
        return framework
    return replace(framework, host=replace(framework.host, cuda_graph=given))


def check_modes(context: Context, job: Job) -> None:
    """Raise for the first mode that does not go together with the rest of the job."""
    for fault in (*(_graphs(job) if context.spec.training.cuda_graphs else ()), *_kept_logits(job)):
        context.require(fault, NotBuilt)


def _graphs(job: Job) -> Iterator[Fault]:
    """A step that is captured once and replayed has no place where the host waits or decides."""
    if job.framework.host.blocking:
        yield Fault(GRAPHS, f"{job.framework.name} waits for every launch, which no capture allows; leave it out")
    if job.sharding.offload.any:
        yield Fault(GRAPHS, "the host works on offloaded states inside the step; sharding.offload: none would work")
    if job.model.has_experts and not job.training.routing.pad_to_capacity:
        reason = "the host waits for how many tokens each expert gets"
        yield Fault(GRAPHS, f"{reason}; training.moe: {{capacity_factor: 1, pad_to_capacity: true}} would work")
    if job.pipeline.p2p == "blocking" or (job.parallel.pp > 1 and job.framework.communication.p2p_blocking):
        yield Fault(GRAPHS, "the host waits for messages between stages; pipeline.p2p: async or pp: 1 would work")


def _kept_logits(job: Job) -> Iterator[Fault]:
    """Logits that nobody has cannot be kept, and results go to the caller of a whole model."""
    kept = job.training.kept_logits
    if kept and job.training.cross_entropy == "fused_linear":
        yield Fault(LOGITS, "cross_entropy: fused_linear never has all logits; chunked or standard has")
    if kept and job.pipeline.vocabulary_parallel:
        yield Fault(LOGITS, "pipeline.vocabulary_parallel has no caller that gets logits; false would work")
    if kept == "outputs" and job.parallel.pp > 1:
        yield Fault(LOGITS, "stages of a pipeline give no keys and values to a caller; true would work, or pp: 1")
