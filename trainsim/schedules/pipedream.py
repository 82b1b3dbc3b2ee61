"""PipeDream: asynchronous 1F1B, an update after every backward, weights kept per version (arXiv 1806.03377)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainsim.schedules import Slot, flat, schedules
from trainsim.schedules.check import one_chunk
from trainsim.schedules.one_f_one_b import one_f_one_b
from trainsim.schedules.traits import Traits


class Version(NamedTuple):
    """Which weights a minibatch saw on a rank; versions count updates. ``staleness``: updates in between."""

    minibatch: int
    forward: int
    backward: int
    after_update: int
    staleness: int


def stashed(rank: int, ranks: int) -> int:
    """Versions of the weights that *rank* holds: one for each minibatch in flight.

    >>> [stashed(rank, 4) for rank in range(4)]
    [4, 3, 2, 1]
    """
    return ranks - rank


@schedules.register(
    "pipedream",
    "PipeDream",
    traits=Traits(
        asynchronous=True,
        eager_updates=True,
        versions=stashed,
        needs="weight versions: one per minibatch in flight",
        source="arXiv 1806.03377",
    ),
    check=one_chunk,
)
def pipedream(rank: int, ranks: int, *, microbatches: int, chunks: int = 1, group: int | None = None) -> Iterator[Slot]:
    """The order of 1F1B over an endless stream of minibatches, of which these are the first.

    >>> print(*pipedream(1, 3, microbatches=4))
    F0 F1 B0 F2 B1 F3 B2 B3
    """
    return flat(one_f_one_b(rank, ranks, microbatches=microbatches))


def versions(rank: int, ranks: int, *, minibatches: int) -> Iterator[Version]:
    """The weights of every minibatch on *rank*: the newest forward, the same again backward (weight stashing).

    >>> list(versions(0, 2, minibatches=3))[-1]
    Version(minibatch=2, forward=1, backward=1, after_update=3, staleness=1)
    """
    for k in range(minibatches):
        used = max(0, k - (ranks - 1 - rank))
        yield Version(minibatch=k, forward=used, backward=used, after_update=k + 1, staleness=k - used)
