"""
ZeRO-1: replicas share the optimizer states (Rajbhandari et al. 2020; Megatron's distributed optimizer).

Gradients are reduced as the framework does it (Megatron: reduce-scatter, DeepSpeed: all-reduce of whole buckets);
after the step the updated parameters are gathered in the training precision.
"""

from collections.abc import Sequence

from trainsim.job import Job
from trainsim.sharding import Bucket, Exchange, Parts, bucket_size, buckets, strategies

PARAMETER_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "nvfp4": 2}


@strategies.register("zero1")
def zero1(job: Job, stage: int, chunks: Sequence[Parts]) -> Exchange:
    """A reduction of the gradients and a gather of the parameters per step."""
    overlap = job.sharding.overlap
    gather_overlap = overlap and job.framework.parameter_gather_overlap

    def cut(operation: str, bytes_per_element: float, overlapped: bool) -> tuple[tuple[Bucket, ...], ...]:
        return tuple(
            buckets(
                parts,
                operation=operation,
                bytes_per_element=bytes_per_element,
                size=bucket_size(job, stage, c, overlapped),
            )
            for c, parts in enumerate(chunks)
        )

    return Exchange(
        reductions=cut(job.framework.zero1_operation, job.training.gradient_bytes, overlap),
        gathers=cut("all_gather", PARAMETER_BYTES[job.training.precision], gather_overlap),
        overlapped=overlap,
        gathers_overlapped=gather_overlap,
        shard=job.parallel.dp * job.parallel.cp,
    )
