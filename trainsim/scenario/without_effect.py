"""Options that are written in a scenario and change nothing in it: each is said under ``derived``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainsim.contracts.job import Job
from trainsim.documents.origin import key_of, value_at
from trainsim.errors import shorten
from trainsim.scenario.context import Context
from trainsim.scenario.placement import placed_nodes
from trainsim.scenario.recomputation import note_idle, note_rare
from trainsim.scenario.what_if_section import WhatIfSpec
from trainsim.sharding import strategies
from trainsim.sharding.replicas import replicas

RULES: dict[str, tuple[Callable[[Job], bool], str]] = {
    "parallel.context_parallel": (lambda job: job.parallel.cp == 1, "cp is 1"),
    "parallel.sequence_parallel": (lambda job: job.parallel.tp == 1, "tp is 1"),
    "pipeline.p2p": (lambda job: job.parallel.pp == 1, "pp is 1, so there are no messages"),
    "pipeline.post_validation": (lambda job: _has_all_gradients(job), "each rank knows the gradient norm by itself"),
    "pipeline.vocabulary_parallel": (lambda job: job.parallel.pp == 1, "pp is 1"),
    "training.loss_scaling": (lambda job: job.training.precision != "fp16", "only the loss of fp16 is scaled"),
    "training.loss_parallel": (lambda job: job.parallel.tp == 1, "tp is 1"),
    "training.tp_overlap": (lambda job: job.parallel.tp == 1, "tp is 1"),
    "simulation.seed": (
        lambda job: not job.jitter.any,
        "nothing in this simulation is random; simulation.jitter would be",
    ),
}
"""When a field has no effect, and why."""


def _has_all_gradients(job: Job) -> bool:
    """Whether a rank has all gradients of the model, so that it agrees with nobody on their norm."""
    shared = bool(strategies[job.sharding.strategy].shares) and replicas(job) > 1
    return job.parallel.tp == job.parallel.pp == 1 and not shared


def note_without_effect(context: Context, job: Job) -> None:
    """A note for every field that is written, differs from its default and has no effect."""
    for key, (is_idle, reason) in RULES.items():
        value = value_at(context.data, key_of(key))
        section, _, name = key.rpartition(".")
        usual = type(getattr(context.spec, section)).model_fields[name].default
        if value not in (None, usual, False, "none") and is_idle(job):
            context.derived(key, shorten(value).strip("'"), f"without effect: {reason}")
    if "price_per_gpu_hour" in (context.spec.cluster.model_extra or {}) and job.training.tokens is None:
        reason = "without effect: the cost is that of a whole training run, whose length is training.tokens"
        context.derived("cluster.price_per_gpu_hour", f"{job.cluster.price_per_gpu_hour:g}", reason)
    _note_network(context, job)
    for k, entry in enumerate(context.spec.what_if):
        for key, value, reason in _idle(entry):
            context.derived(f"what_if.{k}.{key}", value, f"without effect: {reason}")
    note_rare(context, job)
    note_idle(context, job)


def _note_network(context: Context, job: Job) -> None:
    """A note for what is said of the network and changes nothing."""
    background = context.spec.cluster.background
    if background is not None and not background.load:
        context.derived("cluster.background.load", 0, "without effect: a load of 0 uses none of the links")
    if (context.spec.cluster.model_extra or {}).get("sharp") and len(placed_nodes(job.allocation, job.cluster)) == 1:
        reason = "without effect: the job has one node, and switches add up what nodes send"
        context.derived("cluster.sharp", "true", reason)


def _idle(entry: WhatIfSpec) -> Iterator[tuple[str, str, str]]:
    """(Key, value, reason) of what changes nothing in an entry of ``what_if``, whatever the run is."""
    if entry.fail is not None and entry.fail.uplink is not None and not entry.fail.count:
        yield "fail.count", "0", f"no uplink of {entry.fail.uplink} fails"
    if entry.delay is not None and not entry.delay.seconds:
        yield "delay.seconds", "0", "nobody waits"
    for kind, factor in (("slow", entry.slow and entry.slow.factor), ("flap", entry.flap and entry.flap.factor)):
        if factor == 1.0:
            yield f"{kind}.factor", "1", "a factor of 1 changes nothing"
