"""
Parameter groups: the parameters of a rank that the same ranks hold, and between how many of these each state is shared.

Most models have one group. Adapters and the frozen weights under them are two; experts, which fewer ranks hold alike
than the layers around them, are one of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.contracts.groups import REPLICAS, Group
from trainsim.models.matrices import Tensors

DENSE, EXPERTS, ADAPTERS, FROZEN = "dense", "experts", "adapters", "frozen"


class ChunkParameters(NamedTuple):
    """Parameters of one chunk on one rank, in the order in which its gradients are ready: head, layers, embedding."""

    head: int
    layers: tuple[int, ...]
    embedding: int

    @property
    def parts(self) -> tuple[int, ...]:
        """All of them, by part of a backward pass."""
        return (self.head, *self.layers, self.embedding)

    @property
    def total(self) -> int:
        return sum(self.parts)

    def plus(self, other: ChunkParameters) -> ChunkParameters:
        """Both together, part by part.

        >>> ChunkParameters(1, (2, 3), 4).plus(ChunkParameters(0, (10, 0), 0))
        ChunkParameters(head=1, layers=(12, 3), embedding=4)
        """
        layers = tuple(a + b for a, b in zip(self.layers, other.layers, strict=True))
        return ChunkParameters(self.head + other.head, layers, self.embedding + other.embedding)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterGroup:
    """Parameters of one rank that ``replicas`` ranks hold alike, those that meet in ``over``.

    ``chunks`` are their numbers, ``tensors`` their shapes, at which some optimizers look; None: like those of the whole
    model. Those that are not ``trained`` have no gradients; ``stored`` are their bytes (None: as in the passes).

    >>> chunk = ChunkParameters(head=2, layers=(3, 3), embedding=2)
    >>> ParameterGroup(name="dense", chunks=(chunk, chunk), replicas=8).total
    20
    """

    name: str
    chunks: tuple[ChunkParameters, ...]
    replicas: int
    over: Group = REPLICAS
    tensors: Tensors | None = None
    trained: bool = True
    stored: float | None = None

    @property
    def total(self) -> int:
        """Parameters of all chunks."""
        return sum(chunk.total for chunk in self.chunks)


class Shards(NamedTuple):
    """Between how many of the replicas of a group each state is shared; 1: each holds all of it."""

    weights: int = 1
    gradients: int = 1
    optimizer: int = 1

    @classmethod
    def of_all(cls, ranks: int) -> Shards:
        """All states shared by so many *ranks*."""
        return cls(ranks, ranks, ranks)


class Held(NamedTuple):
    """A group of parameters, and how its states are shared."""

    group: ParameterGroup
    shards: Shards = Shards()


def shared(amounts: Iterable[tuple[float, int]]) -> float:
    """What one rank holds of (amount, ranks that share it) each.

    Amounts that as many ranks share are added before they are divided: how parameters are grouped changes no bit.

    >>> shared([(10, 3), (20, 3), (7, 1)])
    17.0
    """
    by_degree: dict[int, float] = {}
    for amount, ranks in amounts:
        by_degree[ranks] = by_degree.get(ranks, 0) + amount
    return float(sum(amount / ranks for ranks, amount in by_degree.items()))
