"""What activations on the host go together with, and what is worth saying of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainsim.contracts.job import Job
from trainsim.errors import NotBuilt
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.schedules.lookup import facts

KEY = "training.activation_offload"


def check_activations(context: Context, job: Job) -> None:
    """Raise for what is not simulated, and where the machine has no memory of a host."""
    if job.training.activation_offload == "none":
        return
    for fault in _broken(job):
        context.require(fault, NotBuilt)
    with context.at(KEY):
        job.cluster.storage("host_out", np.arange(1))
    what = "inputs of recomputed layers" if job.training.recompute == "full" else "what layers save"
    context.derived(KEY, job.training.activation_offload, f"{what}; the head's saved tensors stay on the GPU")


def _broken(job: Job) -> Iterator[Fault]:
    shape, name = facts(job.pipeline.schedule), job.pipeline.schedule
    if shape.paired or shape.sliced or shape.asynchronous or shape.replicas > 1:
        yield Fault(KEY, f"not simulated with {name}; 1f1b, interleaved-1f1b, gpipe and zero-bubble schedules work")
    if job.pipeline.vocabulary_parallel:
        yield Fault(KEY, "not simulated with pipeline.vocabulary_parallel; leave one of the two out")
    if job.pipeline.p2p == "blocking":
        yield Fault(KEY, "not simulated with p2p: blocking; p2p: async would work")
