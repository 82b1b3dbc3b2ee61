"""Which attention kernel runs: as the scenario asks, as the framework does, as the GPU and the precision allow."""

from __future__ import annotations

from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.hardware.gpu import GPU
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context

SINGLE = ("fp32", "tf32")
KEY = "training.attention"
DISPATCHED = "sdpa"
"""PyTorch's scaled_dot_product_attention, which takes the kernel that fits."""


def attention_kernel(context: Context, framework: Framework, gpu: GPU) -> str:
    """The kernel, with a note where it is not the one that was written down, or goes by the curves of another."""
    given, constants = context.spec.training.attention, gpu.kernels.attention
    asked = given or framework.kernels.attention
    if context.spec.training.precision in SINGLE:
        return _in_single_precision(context, asked, given)
    reasons = [] if given else [f"as {framework.name} does"]
    if asked == DISPATCHED:
        kernel = constants.usual
        reasons.append(f"the kernel that sdpa selects on {gpu.name}")
    elif asked in constants.absent and not given:
        kernel = constants.usual
        reasons = [f"{framework.name} uses {asked}, which needs {constants.absent[asked]}"]
    else:
        kernel = asked
        context.require(_absent(kernel, gpu), ScenarioError)
    if kernel != "eager" and kernel not in constants.curves:
        reasons.append(f"not measured on {gpu.name}; the curve of {constants.known(kernel)} is used")
    if reasons:
        context.derived(KEY, kernel, "; ".join(reasons))
    return kernel


def _in_single_precision(context: Context, asked: str, given: str | None) -> str:
    """Fused kernels take 16-bit numbers or fewer; only the unfused one runs."""
    precision = context.spec.training.precision
    if given not in (None, "eager", DISPATCHED):
        context.require(Fault(KEY, f"the kernel does not support {precision}; use eager, or precision: bf16"))
    if asked != "eager":
        context.derived(KEY, "eager", f"{asked} does not support {precision}")
    return "eager"


def _absent(kernel: str, gpu: GPU) -> Fault | None:
    constants = gpu.kernels.attention
    if kernel not in constants.absent:
        return None
    others = ", ".join(dict.fromkeys(("sdpa", *constants.named, constants.usual, "eager")))
    return Fault(KEY, f"it needs {constants.absent[kernel]} and does not run on {gpu.name}; {others} would")
