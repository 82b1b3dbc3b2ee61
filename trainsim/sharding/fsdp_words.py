"""What is said of options of fully sharded data parallelism: which software has them, and where they change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.sharding.fsdp_options import (
    BACKWARD_PREFETCH,
    FORWARD_PREFETCH,
    GATHER_DTYPE,
    LIMIT,
    UNITS,
    limits_gathers,
)
from trainsim.sharding.run_ahead import run_ahead
from trainsim.sharding.strategy import Derived, Refusal

TITLES = {"fsdp1": "PyTorch's FSDP1", "fsdp2": "PyTorch's FSDP2", "megatron": "Megatron-FSDP"}


def unknown_to_software(job: Job) -> Iterator[Refusal]:
    """Options that another FSDP has, and units of more layers than there are."""
    software, count = job.framework.communication.fsdp, UNITS.of(job)
    if isinstance(count, int) and count > job.model.layers:
        reason = f"{count} layers per unit, and the model has {job.model.layers}"
        yield Refusal(UNITS.name, f"{reason}; {job.model.layers} would work, or model")
    if not limits_gathers(job) and software != "fsdp1":
        reason = f"{TITLES[software]} has no such limit, and the host needs none there"
        yield Refusal(LIMIT.name, f"{reason}; leave it out, or framework: pytorch-fsdp1 has it")
    for option, known in ((FORWARD_PREFETCH, "true and false"), (BACKWARD_PREFETCH, "pre, post and none")):
        given = option.of(job)
        if software == "fsdp1" and isinstance(given, int) and not isinstance(given, bool) and given > 1:
            reason = f"{TITLES[software]} knows {known}, and gathers one unit ahead"
            yield Refusal(option.name, f"{reason}; framework: pytorch-fsdp2 takes a number")


def wrong_gathers(job: Job) -> Iterator[Refusal]:
    """Types in which nobody computes."""
    given, precision, software = GATHER_DTYPE.of(job), job.training.precision, job.framework.communication.fsdp
    if given == "fp8" and precision != "fp8":
        reason = f"linear layers compute in {precision}, and only those that compute in fp8 are gathered in it"
        yield Refusal(GATHER_DTYPE.name, f"{reason}; training.precision: fp8 would go with it")
    elif given == "fp8" and software == "fsdp1":
        reason = f"{TITLES[software]} gathers flat parameters of one type"
        yield Refusal(GATHER_DTYPE.name, f"{reason}; framework: pytorch-fsdp2 gathers linear layers in fp8")
    usual = "fp32" if precision in ("fp32", "tf32") else "fp16" if precision == "fp16" else "bf16"
    if given in ("bf16", "fp16", "fp32") and given not in (usual, "fp32"):
        yield Refusal(GATHER_DTYPE.name, f"layers compute in {usual} (training.precision); {usual} or fp32 would work")


def notes(job: Job) -> Iterator[Derived]:
    """Options that change nothing, and how far a host is ahead that nobody holds back."""
    if job.parallel.pp > 1:
        for option in (UNITS, LIMIT):
            if option.of(job) not in (None, True):
                reason = "without effect: in a pipeline parameters stay unsharded after their first forward"
                yield Derived(option.name, _shown(option.of(job)), reason)
        return
    if UNITS.of(job) == "layers_and_embeddings" and job.model.tied_embeddings:
        reason = "embedding and head are one matrix, which stays in the root, so that nothing differs from layers"
        yield Derived(UNITS.name, "layers_and_embeddings", reason)
    yield from _ahead(job)
    for prefetch in (FORWARD_PREFETCH, BACKWARD_PREFETCH):
        if prefetch.of(job) not in (None, False, "none") and not job.sharding.overlap:
            reason = "without effect: overlap is false, so that everything is gathered where it is needed"
            yield Derived(prefetch.name, _shown(prefetch.of(job)), reason)


def _ahead(job: Job) -> Iterator[Derived]:
    software, given = job.framework.communication.fsdp, LIMIT.of(job)
    if given and software != "fsdp1":
        yield Derived(LIMIT.name, "true", f"without effect: {TITLES[software]} has no such limit, and needs none")
    if not limits_gathers(job):
        ahead = run_ahead(job)
        reason = f"the host may be {ahead.queue} kernels ahead, {ahead.layers:.0f} layers of a forward"
        yield Derived(LIMIT.name, "false", reason)
    if FORWARD_PREFETCH.of(job) in (True, 1) and job.sharding.overlap:
        reason = "without effect: the host is one unit ahead by itself"
        yield Derived(FORWARD_PREFETCH.name, _shown(FORWARD_PREFETCH.of(job)), reason)


def _shown(value: object) -> str:
    return str(value).lower()
