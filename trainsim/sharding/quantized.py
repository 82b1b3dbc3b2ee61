"""
What ZeRO++ puts on the wire in place of 16-bit numbers: 8-bit weights, 4-bit gradients in two all-to-alls.

qwZ quantizes in blocks with one fp32 scale each; a gather is one of the numbers and one of the scales. qgZ takes one
tensor at a time: quantized and exchanged within the node, summed, quantized again and exchanged between nodes. Tensors
that are no matrices or do not divide are reduce-scattered as ever. Source: Wang et al. 2023 (arXiv 2306.10209) and
deepspeedai/DeepSpeed 0.19, deepspeed/runtime/zero/partition_parameters.py and runtime/comm/coalesced_collectives.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.contracts.job import Job
from trainsim.sharding.flights import FlightStep
from trainsim.sharding.replicas import across, replicas, within
from trainsim.sharding.strategy_options import SHARD_SIZE, Option
from trainsim.sharding.tensorwise import Whole

QUANTIZED_WEIGHTS = Option("quantized_weights", False, "flag", "qwZ: parameters are gathered in 8 bits")
QUANTIZED_GRADIENTS = Option("quantized_gradients", False, "flag", "qgZ: gradients are exchanged in 4 bits")

BLOCK = 8192  # elements that share a scale: DeepSpeed aims at 8 k
SCALE = 4.0  # bytes of a scale, fp32
HALF = 0.5  # bytes of a 4-bit number


def gathered(job: Job, elements: int, tensors: int, *, ranks: int) -> Iterator[FlightStep]:
    """The steps of one all-gather of *elements* in so many *tensors* that *ranks* neighbouring replicas share."""
    over = within(job, ranks)
    full = float(job.training.number_bytes * elements)
    if QUANTIZED_WEIGHTS.of(job):
        yield FlightStep("traffic", 3.0 * elements / ranks)
        yield FlightStep("all_gather", float(elements), over)
        yield FlightStep("all_gather", SCALE * elements / BLOCK, over)
        yield FlightStep("traffic", elements + full)
    else:
        yield FlightStep("all_gather", full, over)
        if tensors > 1:  # from one buffer into the tensors
            yield FlightStep("traffic", 2 * full)


def exchanged(job: Job, whole_model: Whole, tensors: Sequence[int], size: int) -> Iterator[FlightStep]:
    """The steps that reduce and scatter the gradients of some *tensors* over groups of *size* replicas."""
    plain = list(tensors)
    node = SHARD_SIZE.of(job) or 1
    if QUANTIZED_GRADIENTS.of(job) and node < replicas(job):
        plain = [t for t in tensors if not (whole_model.matrix[t] and whole_model.sizes[t] % (2 * replicas(job)) == 0)]
        for tensor in tensors:
            if tensor not in plain:
                yield from _in_two_hops(job, whole_model.sizes[tensor], node)
    if plain:
        yield FlightStep(
            "reduce_scatter", float(job.training.gradient_bytes * whole_model.elements(plain)), within(job, size)
        )


def _in_two_hops(job: Job, elements: int, node: int) -> Iterator[FlightStep]:
    """4-bit numbers and their scales within the node, then what is left of them between nodes."""
    yield FlightStep("traffic", (job.training.gradient_bytes + HALF) * elements)
    for left, over in ((elements, within(job, node)), (elements / node, across(node))):
        yield FlightStep("all_to_all", HALF * left, over)
        yield FlightStep("all_to_all", SCALE * left / BLOCK, over)
        yield FlightStep("traffic", (HALF + HALF / node) * left)
