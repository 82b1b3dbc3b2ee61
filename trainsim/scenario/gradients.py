"""The types of gradients: on the wire, and in which micro-batches are summed; ``training.gradients`` means both."""

from __future__ import annotations

from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.scenario import checks
from trainsim.scenario.attention import SINGLE
from trainsim.scenario.context import Context

GRADIENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def wire_bytes(context: Context, framework: Framework) -> int:
    """Bytes of a gradient on the wire: what the scenario says, or what the framework sends."""
    precision = context.spec.training.precision
    if dtype := _said(context, "gradient_dtype"):
        return GRADIENT_BYTES[dtype]
    dtype = gradient_dtype(framework.communication.gradient_bytes, precision)
    context.derived("training.gradient_dtype", dtype, f"on the wire, as {framework.name} does")
    return framework.communication.gradient_bytes


def gradient_dtype(nbytes: int, precision: str) -> str:
    """The name of a gradient's type on the wire.

    >>> gradient_dtype(4, "bf16"), gradient_dtype(2, "fp16"), gradient_dtype(2, "fp8")
    ('fp32', 'fp16', 'bf16')
    """
    return "fp32" if nbytes == GRADIENT_BYTES["fp32"] else "fp16" if precision == "fp16" else "bf16"


def accumulation_dtype(context: Context) -> str | None:
    """The scenario's, if it is one that the precision has: 16-bit sums are in the precision of training."""
    given, precision = _said(context, "accumulation_dtype"), context.spec.training.precision
    low = "fp16" if precision == "fp16" else "bf16"
    if given not in (None, "fp32", low) or (given == low and precision in SINGLE):
        known = "fp32" if precision in SINGLE else f"fp32 and {low}"
        key = "accumulation_dtype" if context.spec.training.accumulation_dtype else "gradients"
        reason = f"{precision} gradients cannot be accumulated in {given}; {known} would work"
        context.require(checks.Fault(f"training.{key}", reason), ScenarioError)
    return given


def _said(context: Context, key: str) -> str | None:
    """The type under *key*, or that of all gradients, which may not differ."""
    spec = context.spec.training
    own: str | None = getattr(spec, key)
    if own and spec.gradients and own != spec.gradients:
        reason = f"training.{key} is {own}; give only one of the two, or gradients: {own}"
        context.require(checks.Fault("training.gradients", reason), ScenarioError)
    if spec.gradients and not own:
        context.derived(f"training.{key}", spec.gradients, "training.gradients")
    return own or spec.gradients
