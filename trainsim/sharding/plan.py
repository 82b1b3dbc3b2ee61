"""What a strategy makes of a job: the collectives of a step, and between how many ranks states are shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trainsim.contracts.groups import REPLICAS, Group
from trainsim.sharding.flights import FlightPlan
from trainsim.sharding.parameter_groups import Held, ParameterGroup, Shards


class Bucket(NamedTuple):
    """One collective: ``nbytes`` of the full buffer, ready after ``after`` layers of the chunk's last backward.

    ``after`` = layers + 1 means: after the embedding's gradient. ``over`` are the replicas that meet: all, or a part.
    ``group`` is the name of the parameters that are in it.
    """

    operation: str
    nbytes: float
    after: int
    over: Group = REPLICAS
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingPlan:
    """What one rank sends for data parallelism in a step: ``reductions[chunk]`` and ``gathers[chunk]``, once, and
    ``flights`` beside every pass. ``norms`` are the bytes of the sums that ranks agree on before an update.

    ``shards`` says by group of parameters between how many ranks states are shared (none: each holds all). ``extra``
    are bytes by category that it holds all the time beside these states. ``fresh`` are bytes of gradients that the
    first reductions of a step make and its update gives back.
    """

    reductions: tuple[tuple[Bucket, ...], ...]
    gathers: tuple[tuple[Bucket, ...], ...] = ()
    overlapped: bool = False
    gathers_overlapped: bool = False
    shards: Mapping[str, Shards] = field(default_factory=dict)
    norms: tuple[float, ...] = (4.0,)
    flights: FlightPlan = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)
    fresh: float = 0.0

    def held(self, groups: Iterable[ParameterGroup]) -> tuple[Held, ...]:
        """*groups* with their shards."""
        return tuple(Held(group, self.shards.get(group.name, Shards())) for group in groups)

    @property
    def shares_updates(self) -> bool:
        """Whether a rank updates its share only of some parameters."""
        return any(shards.optimizer > 1 for shards in self.shards.values())

    def twice(self, copies: int) -> ShardingPlan:
        """The same where *copies* ranks of a pipeline hold the same parameters: they share updates if these are
        gathered."""
        ranks = {name: s.optimizer * copies if self.gathers else 1 for name, s in self.shards.items()}
        return replace(self, shards={name: s._replace(optimizer=ranks[name]) for name, s in self.shards.items()})


def by_readiness(buckets: Iterable[Bucket]) -> tuple[Bucket, ...]:
    """Buckets of several groups in the order in which a backward pass fills them."""
    return tuple(sorted(buckets, key=lambda bucket: bucket.after))


def trained(groups: Sequence[ParameterGroup]) -> list[ParameterGroup]:
    """Those that have gradients."""
    return [group for group in groups if group.trained]
