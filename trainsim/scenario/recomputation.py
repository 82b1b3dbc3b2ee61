"""What is computed again instead of kept: the mode, and the layers, modules or policy that it is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainsim.contracts.job import Job
from trainsim.models.recompute import policies
from trainsim.models.recompute_modules import recompute_modules
from trainsim.program.stages import recompute_modes, virtual_stages
from trainsim.scenario import checks
from trainsim.scenario.context import Context
from trainsim.scenario.schema import RecomputeSpec

KEY = "training.recompute"
BELONGS = {"layers": "full", "every": "full", "modules": "selective", "policy": "selective"}
"""The mode that each part of it can be given with."""
EXCLUSIVE = (("layers", "every"), ("modules", "policy"))
"""Two answers to one question."""


def resolve_recompute(context: Context) -> tuple[str, dict[str, Any]]:
    """The mode, and the values of the job's training that say what it is about."""
    spec = context.spec.training.recompute
    if not isinstance(spec, RecomputeSpec):
        return spec, {}
    for fault in _faults(spec):
        context.require(fault)
    out: dict[str, Any] = {"recompute_layers": spec.layers, "recompute_every": spec.every or 1}
    with context.at(f"{KEY}.modules"):
        out["recompute_modules"] = tuple(map(recompute_modules.canonical, spec.modules))
    with context.at(f"{KEY}.policy"):
        out["recompute_policy"] = policies.canonical(spec.policy) if spec.policy else None
    return spec.mode, out


def _faults(spec: RecomputeSpec) -> Iterator[checks.Fault]:
    for part, mode in BELONGS.items():
        if getattr(spec, part) and spec.mode != mode:
            yield checks.Fault(KEY, f"{part} can only be given with mode: {mode}")
    for one, other in EXCLUSIVE:
        if getattr(spec, one) and getattr(spec, other):
            yield checks.Fault(KEY, f"{one} and {other} both say what is recomputed; leave one of them out")


def note_rare(context: Context, job: Job) -> None:
    """A note where no rank has so many layers that one of them would be recomputed."""
    every, modes = job.training.recompute_every, recompute_modes(job, virtual_stages(job))
    if every > 1 and "full" not in modes:
        context.derived(f"{KEY}.every", every, f"without effect: no rank has {every} layers, so none is recomputed")


def note_idle(context: Context, job: Job) -> None:
    """A note where the core of attention would be recomputed and a fused kernel keeps nothing of it."""
    training = job.training
    policy = training.recompute_policy or job.framework.memory.selective
    core = training.recompute_modules == ("core_attn",) if training.recompute_modules else policy == "attention"
    if training.recompute == "selective" and core and training.attention != "eager":
        reason = f"without effect: {training.attention} attention keeps no scores that could be recomputed"
        context.derived(KEY, "selective", reason)
