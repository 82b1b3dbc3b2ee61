"""What a scenario draws at random, and what is told of it."""

from __future__ import annotations

from trainsim.contracts.job import Jitter
from trainsim.costs.spread import gpu_spread
from trainsim.scenario.context import Context


def find_jitter(context: Context, gpus: int) -> Jitter:
    """The deviations of *context*'s scenario, with a note on what they take the place of and what they cost."""
    spec = context.spec.simulation
    if spec.jitter is None:
        return Jitter()
    jitter = Jitter(gpu=spec.jitter.gpu, network=spec.jitter.network, kernel=spec.jitter.kernel)
    reasons = []
    if jitter.gpu is not None:
        reasons.append(f"instead of {gpu_spread(gpus):.3f} on all kernels, for the slowest of {gpus:,} GPUs on average")
    if jitter.any and spec.fold and gpus > 1:
        reasons.append("GPUs with different draws are simulated one by one, which takes longer than folding them")
    if jitter.any:
        reasons.append("one draw of many: other values of simulation.seed show how far steps differ")
    if reasons:
        context.derived("simulation.jitter", f"seed {spec.seed}", "; ".join(reasons))
    return jitter
