"""FSDP within a node, averages between nodes: ``HYBRID_SHARD`` of FSDP1, a two-dimensional mesh in FSDP2."""

from collections.abc import Iterator

from trainsim.contracts.job import Job
from trainsim.sharding import Strategy, alone, strategies
from trainsim.sharding.fsdp import USES, hsdp, summed_by
from trainsim.sharding.fsdp import refuses as fsdp_refuses


def refuses(job: Job) -> Iterator[tuple[str, str]]:
    """What FSDP refuses, and groups of one."""
    yield from fsdp_refuses(job)
    yield from alone(job)


strategies.register("hsdp")(
    Strategy(
        plan=hsdp,
        uses=USES | {"shard_size"},
        refuses=refuses,
        every_pass=True,
        framework="pytorch-fsdp2",
        shares_parameters=True,
        summed_by=summed_by,
    )
)
