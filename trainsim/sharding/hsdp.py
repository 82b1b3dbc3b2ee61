"""FSDP within a node, averages between nodes: ``HYBRID_SHARD`` of FSDP1, a two-dimensional mesh in FSDP2."""

from trainsim.sharding import Strategy, strategies
from trainsim.sharding.fsdp import USES, hsdp, refuses, summed_by

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
