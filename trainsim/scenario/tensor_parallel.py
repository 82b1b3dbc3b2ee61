"""What tensor parallelism brings along: how its collectives overlap, as the framework can."""

from __future__ import annotations

from trainsim.contracts.job import Parallel
from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.program.tensor_overlap import tensor_overlaps
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context, default

PIPELINED = {"pytorch": "async"}
"""What ``tp_overlap: true`` means, by family; else user buffers."""


def tensor_overlap(context: Context, framework: Framework, parallel: Parallel) -> str:
    """The way that the scenario asks for, or the framework's; without sequence parallelism as far as that goes."""
    key, given = "training.tp_overlap", context.spec.training.tp_overlap
    if isinstance(given, bool):
        name = PIPELINED.get(framework.family, "userbuffers") if given else "none"
    else:
        name = str(default(context, key, given, framework.communication.tp_overlap))
    way = tensor_overlaps[name]
    if not way.pipelined or parallel.sequence_parallel or parallel.tp == 1:
        return name
    if isinstance(given, str):
        reason = (
            f"only gathers and scatters of sequence parallelism are cut into parts, and it is off; "
            f"parallel.sequence_parallel: true would work, or tp_overlap: {way.outside}"
        )
        context.require(Fault(key, reason), ScenarioError)
    context.derived(key, way.outside, f"{name} needs sequence parallelism")
    return way.outside
