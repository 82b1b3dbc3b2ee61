"""ZeRO++: ZeRO-3 with 8-bit weights (qwZ), a second copy of them per node (hpZ) and 4-bit gradients (qgZ)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainsim.sharding import strategies
from trainsim.sharding.quantized import QUANTIZED_GRADIENTS, QUANTIZED_WEIGHTS
from trainsim.sharding.replicas import of_a_node
from trainsim.sharding.strategy import Derived
from trainsim.sharding.zero3 import SECONDARY, ZERO3


def brings(given: Mapping[str, Any], node: int) -> Iterator[Derived]:
    """Its three parts, each unless the scenario says otherwise."""
    for option in (QUANTIZED_WEIGHTS, QUANTIZED_GRADIENTS):
        if option.name not in given:
            yield Derived(option.name, True)
    if given.get(QUANTIZED_GRADIENTS.name, True):
        yield from of_a_node(given, node)
    if SECONDARY.name not in given and node > 1:
        yield Derived(SECONDARY.name, node, "replicas of a node")


strategies.register("zeropp", "zero++")(replace(ZERO3, title="ZeRO++", saves_more_than=frozenset(), brings=brings))
