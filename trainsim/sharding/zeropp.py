"""ZeRO++: ZeRO-3 with 8-bit weights (qwZ), a second copy of them per node (hpZ) and 4-bit gradients (qgZ)."""

from trainsim.sharding import Strategy, replicas, strategies
from trainsim.sharding.zero3 import QUANTIZED, USES, refuses, zero3

strategies.register("zeropp", "zero++")(
    Strategy(
        plan=zero3,
        uses=USES | QUANTIZED,
        refuses=refuses,
        every_pass=True,
        framework="deepspeed",
        shares_parameters=True,
        summed_by=replicas,
    )
)
