"""What tensor parallelism brings along, as the framework can: overlap, the loss, sequences that it does not divide."""

from __future__ import annotations

from trainsim.contracts.job import Parallel
from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.program.tensor_overlap import tensor_overlaps
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context, default

PIPELINED = {"pytorch": "async"}
"""What ``tp_overlap: true`` means, by family; else user buffers."""
LEFT = {
    "none": "no tensor-parallel communication is overlapped",
    "wgrad": "what remains overlapped with the software's switch off: backward collectives, under gradients that do "
    "not depend on them",
}
"""What runs at once where the software's own switch is off."""


def tensor_overlap(context: Context, framework: Framework, parallel: Parallel) -> str:
    """The way that the scenario asks for, or the framework's; without sequence parallelism as far as that goes."""
    key, given = "training.tp_overlap", context.spec.training.tp_overlap
    own, usual = framework.communication.tp_overlap, tensor_overlaps[framework.communication.tp_overlap].outside
    if given is True:
        name = PIPELINED.get(framework.family, "userbuffers")
    elif given is False:
        name = usual
        context.derived(key, name, LEFT[name])
    else:
        name = str(default(context, key, given, own))
    if given == "none" and usual != "none" and parallel.tp > 1:
        context.derived(key, name, f"{LEFT[name]}; {framework.name} with its switch off is {usual}: tp_overlap: false")
    way = tensor_overlaps[name]
    if not way.pipelined or parallel.sequence_parallel or parallel.tp == 1:
        return name
    if isinstance(given, str):
        reason = (
            f"only gathers and scatters of sequence parallelism can be split, and it is off; "
            f"parallel.sequence_parallel: true would work, or tp_overlap: {way.outside}"
        )
        context.require(Fault(key, reason), ScenarioError)
    context.derived(key, way.outside, f"{name} needs sequence parallelism")
    return way.outside


def parallel_loss(context: Context, framework: Framework) -> bool:
    """Whether the loss works on a cut vocabulary; Megatron-LM's always does, and so does a head on all stages."""
    key, spec = "training.loss_parallel", context.spec
    given = spec.training.loss_parallel
    if spec.pipeline.vocabulary_parallel or framework.family == "megatron":
        if given is False:
            who = "a head on all pipeline stages" if spec.pipeline.vocabulary_parallel else framework.name
            context.require(
                Fault(key, f"{who} supports no other loss; true would work, or leave it out"), ScenarioError
            )
        return True
    return bool(default(context, key, given, framework.kernels.loss_parallel))


def uneven_sequence(context: Context, framework: Framework, sequence_length: int) -> bool:
    """Whether a sequence that tp does not divide is padded, with a note where one is."""
    spec = context.spec.parallel
    padded = framework.communication.uneven_sequence == "padded"
    if padded and spec.sequence_parallel and sequence_length % spec.tp:
        part = -(-sequence_length // spec.tp)
        reason = f"{sequence_length} tokens are padded to {part} on each of {spec.tp} ranks, as {framework.name} does"
        context.derived("parallel.sequence_parallel", "true", reason)
    return padded
