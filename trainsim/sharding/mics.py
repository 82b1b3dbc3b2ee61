"""
MiCS: ZeRO-3 within groups of replicas; the groups sum their gradients once, at the end of the step.

Source: Zhang et al. 2022 (arXiv 2205.00119) and deepspeedai/DeepSpeed 0.19, deepspeed/runtime/zero/mics.py.
"""

from collections.abc import Iterator, Sequence

from trainsim.contracts.job import Job
from trainsim.sharding import Exchange, Parts, Strategy, alone, group, strategies, zero2
from trainsim.sharding.zero3 import USES, partitioned


def mics(job: Job, stage: int, chunks: Sequence[Parts]) -> Exchange:
    """States shared by ``shard_size`` replicas."""
    return partitioned(job, group(job))


def refuses(job: Job) -> Iterator[tuple[str, str]]:
    """DeepSpeed's MiCS keeps everything on the GPU."""
    yield from zero2.refuses(job)
    yield from alone(job)
    if job.sharding.offload.any:
        yield "offload", "DeepSpeed's MiCS offloads nothing; zero3 would"


strategies.register("mics")(
    Strategy(
        plan=mics,
        uses=USES | {"shard_size"},
        refuses=refuses,
        every_pass=True,
        framework="deepspeed",
        shares_parameters=True,
        summed_by=group,
    )
)
