"""
How the ranks of a sequence see each other's keys and values: one file per way. Everything else of a layer looks at one
token at a time and works on the rank's own.

A way takes the core of attention as it is on one rank and gives it with the exchanges around, in or under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainsim.models.layer_kind import LayerKind
from trainsim.models.local_layer import LocalLayer
from trainsim.models.operations import Operation
from trainsim.models.shapes import Shape
from trainsim.registry import Registry

Core = Callable[[LocalLayer], tuple[Operation, ...]]
"""The core of attention on one rank: what it does with the queries that it has and all the keys that these look at."""

Complaint = tuple[str, str]
"""(Key of the scenario, why it cannot be, with what would work.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParallelism:
    """``attention`` of a layer by this way, and what ``refuses`` it: a kind of layer, the cut, the attention kernel."""

    attention: Callable[[LocalLayer, Core], tuple[Operation, ...]]
    refuses: Callable[[LayerKind, Shape, str], Iterator[Complaint]]


context_parallelisms: Registry[ContextParallelism] = Registry("way of context parallelism", __name__)
