"""Modes of training that change what is launched or kept, and what each of them does not go together with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainsim.contracts.job import Job, Skip
from trainsim.errors import NotBuilt
from trainsim.frameworks import Framework
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.sharding import strategies
from trainsim.sharding.replicas import replicas

GRAPHS, LOGITS, EARLY = "training.cuda_graphs", "training.kept_logits", "training.optimizer_in_backward"


def with_graphs(context: Context, framework: Framework) -> Framework:
    """*framework* with CUDA graphs or without, if the scenario says which."""
    given = context.spec.training.cuda_graphs
    if given is None or given == framework.host.cuda_graph:
        return framework
    return replace(framework, host=replace(framework.host, cuda_graph=given))


def check_modes(context: Context, job: Job) -> None:
    """Raise for the first mode that does not go together with the rest of the job."""
    graphs = _graphs(job) if context.spec.training.cuda_graphs else ()
    early = _early(job) if job.training.optimizer_in_backward else ()
    for fault in (*graphs, *_kept_logits(job), *early):
        context.require(fault, NotBuilt)
    if job.training.optimizer.paged:
        reason = "states stay on the GPU as far as they fit; the rest is on the host and copied both ways in each step"
        context.derived("training.optimizer", job.training.optimizer.name, reason)
    if job.training.optimizer_in_backward:
        reason = "all gradients never exist at once, so there is no global norm and no clipping by it"
        context.derived(EARLY, "true", reason)


def _graphs(job: Job) -> Iterator[Fault]:
    """A step that is captured once and replayed has no place where the host waits or decides."""
    if job.framework.host.blocking:
        yield Fault(
            GRAPHS, f"{job.framework.name} synchronises after every launch, which cannot be captured; leave it out"
        )
    if job.sharding.offload.any:
        yield Fault(GRAPHS, "the host works on offloaded states inside the step; sharding.offload: none would work")
    waits = job.framework.host.operations_routed and not job.training.routing.pad_to_capacity
    if job.model.has_experts and waits:
        reason = "the host waits for the number of tokens of each expert"
        yield Fault(GRAPHS, f"{reason}; training.moe: {{capacity_factor: 1, pad_to_capacity: true}} would work")
    if job.pipeline.p2p == "blocking" or (job.parallel.pp > 1 and job.framework.communication.p2p_blocking):
        yield Fault(GRAPHS, "the host waits for messages between stages; pipeline.p2p: async or pp: 1 would work")


def _kept_logits(job: Job) -> Iterator[Fault]:
    """Logits that nobody has cannot be kept, and results go to the caller of a whole model."""
    kept = job.training.kept_logits
    if kept and job.training.cross_entropy == "fused_linear":
        yield Fault(LOGITS, "cross_entropy: fused_linear never holds all logits; chunked or standard does")
    if kept and job.pipeline.vocabulary_parallel:
        yield Fault(LOGITS, "pipeline.vocabulary_parallel returns no logits to a caller; false would work")
    if kept == "outputs" and job.parallel.pp > 1:
        yield Fault(LOGITS, "pipeline stages return no keys and values to a caller; true would work, or pp: 1")


def _early(job: Job) -> Iterator[Fault]:
    """Updates need gradients that are complete when the backward has made them, and states that are here."""
    training, strategy = job.training, strategies[job.sharding.strategy]
    if training.microbatches > 1:
        few = job.training.micro_batch * job.parallel.dp
        reason = f"gradients of {training.microbatches} micro-batches are accumulated before the update"
        yield Fault(EARLY, f"{reason}; gradient_accumulation: 1 (global_batch: {few}) would work")
    if job.parallel.pp > 1:
        yield Fault(EARLY, "not simulated in a pipeline; pp: 1 would work")
    if not strategy.updates_in_backward and (replicas(job) > 1 or strategy.every_pass):
        able = ", ".join(name for name in strategies if strategies[name].updates_in_backward)
        reason = f"{strategy.title} reduces gradients in buckets and updates when all are complete"
        yield Fault(EARLY, f"{reason}; {able} would work, or a single replica")
    if job.sharding.offload.any:
        yield Fault(EARLY, "not simulated with states off the GPU; sharding.offload: none would work")
    if job.framework.family in ("megatron", "deepspeed"):
        reason = f"{job.framework.name} accumulates gradients in one contiguous buffer"
        yield Fault(EARLY, f"{reason}; a PyTorch profile would work, such as pytorch-fsdp2")
    if training.optimizer.iterations:
        yield Fault(EARLY, f"not simulated with {training.optimizer.name}, which works on whole matrices; adamw works")
    if training.loss_scaling:
        reason = "an overflow anywhere must be detected before any update"
        yield Fault(EARLY, f"{reason}; precision: bf16 would work, or loss_scaling: none")
    if any(isinstance(what, Skip) for what in job.what_if):
        yield Fault(EARLY, "what_if skips an update that would already have happened; leave one of them out")
