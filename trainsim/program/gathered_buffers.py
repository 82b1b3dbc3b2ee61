"""
What tensor parallelism along the sequence takes beside activations: buffers for gathered inputs, and sums that come
back late.

A sum whose parts are scattered is freed when the host has launched that. PyTorch's allocator gives it out again only
when the GPU has got there (record_stream), so while a host runs ahead one after the other is made anew.
"""

from __future__ import annotations

from trainsim.program.parts import Parts


def gathered_buffers(parts: Parts, rank: int) -> float:
    """Bytes of both on pipeline rank *rank*, under sequence parallelism.

    The host runs ahead through a forward that nothing stops: that of a model without a pipeline, and the forwards of
    the warm-up on the first rank but the last of them, for which it waits.
    """
    job, memory = parts.job, parts.job.framework.memory
    training, parallel = job.training, job.parallel
    if parallel.tp == 1 or not parallel.sequence_parallel:
        return 0.0
    whole = training.micro_batch * training.sequence_length / parallel.cp * job.model.hidden * training.stream_bytes
    layers = sum(stage.layers for stage in parts.of_rank(rank))
    return whole * (memory.gathered_buffers + memory.late_frees * layers * _forwards(parts, rank))


def _forwards(parts: Parts, rank: int) -> int:
    """Forwards through which the host of a rank runs ahead."""
    stages, microbatches = parts.job.parallel.pp, parts.job.training.microbatches
    if stages == 1:
        return 1
    return max(0, min(stages, microbatches) - 2) if rank == 0 else 0
