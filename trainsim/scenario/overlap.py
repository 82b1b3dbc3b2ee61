"""Tokens on their way to experts while another microbatch computes: which schedule does it, and where it is refused."""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.job import Parallel, Training
from trainsim.errors import InvalidPlan
from trainsim.models.transformer import Transformer
from trainsim.scenario.attention import SINGLE
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.schedules.lookup import facts

OVERLAPPED = "interleaved-1f1b-overlap"
"""The schedule that runs forwards and backwards in pairs, ..."""
REPLACED = ("1f1b", "interleaved-1f1b", OVERLAPPED)
"""... and those in whose place it stands."""
KEY = "training.moe_overlap"


def overlapping_schedule(
    context: Context, name: str, *, model: Transformer, parallel: Parallel, training: Training
) -> str:
    """The schedule in the place of *name* where the scenario asks for the overlap, else *name*; notes say which.

    Raises InvalidPlan where Megatron-Core refuses it (megatron/core/transformer/transformer_config.py).
    """
    context.require(_delayed(name, training))
    if not training.moe_overlap:
        return name
    context.require(_experts(model, parallel))
    if facts(name).paired and name != OVERLAPPED:
        context.derived(KEY, "true", f"without effect: {name} runs passes in pairs anyway")
        return name
    for fault in _refused(context, name, parallel, training):
        context.require(fault, InvalidPlan)
    if parallel.pp == 1 and training.microbatches == 1:
        context.derived(KEY, "true", "without effect: there is only one micro-batch, so nothing can overlap")
    if name != OVERLAPPED:
        context.derived("pipeline.schedule", OVERLAPPED, f"instead of {name}: {KEY} is true")
    return OVERLAPPED


def _experts(model: Transformer, parallel: Parallel) -> Fault | None:
    if not model.has_experts:
        return Fault(KEY, f"{model.name} has no experts; leave it out")
    if parallel.ep == 1:
        return Fault(
            KEY, "every rank has all experts, so no tokens are exchanged; use parallel.ep: 2 or more, or leave it out"
        )
    return None


def _delayed(name: str, training: Training) -> Fault | None:
    """Weight gradients that Megatron-Core puts off in pairs of passes only."""
    if not training.delay_wgrad:
        return None
    if not training.moe_overlap:
        return Fault("training.delay_wgrad", f"belongs to {KEY}; write {KEY}: true too, or leave it out")
    if facts(name).split:
        return Fault("training.delay_wgrad", f"{name} already delays weight gradients; leave it out")
    return None


def _refused(context: Context, name: str, parallel: Parallel, training: Training) -> Iterator[Fault]:
    if name not in REPLACED:
        yield Fault(
            KEY, f"sets the order of passes itself and cannot be combined with {name}; leave pipeline.schedule out"
        )
    if parallel.pp > 1 and context.spec.pipeline.chunks == 1:
        way = "pipeline.chunks: 2 or more would work, or pp: 1"
        yield Fault(KEY, f"with pp={parallel.pp} it needs several chunks per rank; {way}")
    if training.recompute == "full":
        way = "recompute: selective or none would work"
        yield Fault(KEY, f"full recomputation would exchange all tokens again in the middle of a pair; {way}")
    if training.routing.shared_overlap:
        way = "leave training.moe.shared_overlap out"
        yield Fault(KEY, f"shared experts cannot run under the exchange as well; {way}")
    if training.routing.dispatcher == "allgather":
        way = "alltoall, deepep and hybridep would work"
        yield Fault(KEY, f"the allgather dispatcher cannot be split for it; {way}")
    if training.precision in SINGLE:
        yield Fault(KEY, f"runs in 16 bits or fewer, not in {training.precision}; precision: bf16 would work")
    if context.spec.pipeline.vocabulary_parallel:
        yield Fault("pipeline.vocabulary_parallel", f"not simulated with {KEY}; leave one of the two out")
