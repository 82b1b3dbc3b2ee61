"""Whether 16 bits come from torch.autocast over fp32 weights, or from weights that are in 16 bits themselves."""

from __future__ import annotations

from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.scenario.attention import SINGLE
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context, called
from trainsim.sharding import strategies

KEY = "training.autocast"
FULLY_SHARDED = ("fsdp", "hsdp")
CAST = ("bf16", "fp16")
"""What torch.autocast casts to."""


def resolve_autocast(context: Context, framework: Framework) -> bool:
    """The scenario's choice, or the framework's where there are fp32 weights to cast. Raises ScenarioError."""
    given, precision = context.spec.training.autocast, context.spec.training.precision
    fault = _fault(context, framework)
    if given is None:
        if fault is None and framework.kernels.autocast:
            context.derived(KEY, "true", f"as {called(context.spec.framework)} does")
        return fault is None and framework.kernels.autocast
    if given and precision in SINGLE:
        context.derived(KEY, "true", f"without effect: everything is in {precision}")
        return False
    context.require(fault if given else None, ScenarioError)
    return given


def _fault(context: Context, framework: Framework) -> Fault | None:
    """Why torch.autocast is not possible, if it is not."""
    precision, strategy = context.spec.training.precision, context.spec.sharding.strategy or "ddp"
    if precision not in CAST or framework.memory.states.weights != "fp32":
        return Fault(KEY, _way_out(framework, precision))
    if strategies[strategy].every_pass and strategies.canonical(strategy) not in FULLY_SHARDED:
        reason = (
            f"{strategy} exchanges weights and gradients in 16 bits; leave it out, or use fsdp, where they are fp32"
        )
        return Fault(KEY, reason)
    return None


def _way_out(framework: Framework, precision: str) -> str:
    if precision not in CAST:
        return f"torch.autocast casts to {' or '.join(CAST)}, not {precision}; leave it out"
    return (
        f"torch.autocast casts weights that are in fp32, and {framework.name} keeps them in {precision}; leave it out, "
        "or use pytorch-ddp, pytorch-fsdp1 or pytorch-fsdp2"
    )
