"""
What ranks that talk to each other take beside activations: NCCL's buffers, and under tensor parallelism along the
sequence those for gathered inputs, and sums that come back late.

A sum whose parts are scattered is freed when the host has launched that. PyTorch's allocator gives it out again only
when the GPU has got there (record_stream), so while a host runs ahead one after the other is made anew.
"""

from __future__ import annotations

from trainsim.contracts.instructions import Kernel
from trainsim.contracts.job import Job
from trainsim.program.parts import Parts

BOUND = 2**0.25 - 1
"""A block waits for its host where it is longer than its kernels by so much (both take as long: block_costs.py)."""


def communicators(job: Job) -> int:
    """Groups of ranks in which a rank is with others: along each axis, all together, the parts of one replica, and both
    ends of a pipeline whose embedding is tied."""
    degrees = job.parallel
    axes = sum(size > 1 for size in (degrees.tp, degrees.cp, degrees.dp, degrees.pp))
    replica = degrees.tp > 1 and degrees.pp > 1 and degrees.dp > 1
    return axes + (axes > 1) + replica + (degrees.pp > 1 and job.model.tied_embeddings)


def gathered_buffers(parts: Parts, rank: int) -> float:
    """Bytes on pipeline rank *rank* of buffers for gathered inputs and of sums that come back late."""
    job, memory = parts.job, parts.job.framework.memory
    training, parallel = job.training, job.parallel
    if parallel.tp == 1 or not parallel.sequence_parallel:
        return 0.0
    whole = training.micro_batch * training.sequence_length / parallel.cp * job.model.hidden * training.stream_bytes
    layers = sum(stage.layers for stage in parts.of_rank(rank))
    late = memory.late_frees * layers * _forwards(parts, rank) if memory.late_frees else 0.0
    return whole * (memory.gathered_buffers + late)


def _forwards(parts: Parts, rank: int) -> int:
    """Forwards through which the host of a rank runs ahead of its GPU.

    The first rank of a pipeline has all that come before the first backward, the others one at a time, since they wait
    for what they receive. A host that waits for its peers is ahead on the first rank only, by two forwards less.
    """
    stages, microbatches = parts.job.parallel.pp, parts.job.training.microbatches
    forwards = min(stages, microbatches) if rank == 0 else 1
    return max(0, forwards - 2) if _waits(parts, rank) else forwards


def _waits(parts: Parts, rank: int) -> bool:
    """Whether the GPU waits for a host that waits for its peers."""
    if not parts.job.framework.host.seconds_per_peer:
        return False
    blocks = [block for stage in parts.of_rank(rank) for block in parts.layer_blocks(stage)]
    host = sum(p.seconds for block in blocks for p in block.forward if isinstance(p, Kernel) and p.kind == "host")
    return host > BOUND * (sum(block.forward_seconds for block in blocks) - host)
