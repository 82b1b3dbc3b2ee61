"""
Islands: rank classes that have nothing to do with others while they are steady, so that each may repeat on its own.

Classes belong together when one sends to the other, when they meet in a steady task, and when one may use a resource
while the other uses it in a steady task. Who uses it only after a meeting cannot do so as long as somebody that the
meeting needs is steady.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trainsim.engine.relative import Reach
from trainsim.engine.track import Track


def islands(tracks: Sequence[Track], posters: Mapping[int, frozenset[int]]) -> list[frozenset[int]]:
    """The islands of the classes of *tracks*; *posters* are the classes that meet in each group."""
    together = _Unions({track.chain.rank_class for track in tracks})
    steady: dict[int, int] = {}
    gated: list[tuple[int, int, frozenset[int]]] = []
    everything = [(track.chain.rank_class, *reach) for track in tracks for reach in _reaches(track)]
    for rank_class, reach, often in everything:
        together.unite(rank_class, *(flags.rank_class for flags in reach.flags))
        if often:
            together.unite(rank_class, *(c for group in reach.groups for c in posters[group]))
            for resource in reach.resources:
                together.unite(rank_class, steady.setdefault(resource, rank_class))
    for rank_class, reach, _ in everything:
        needed = frozenset(c for group in reach.groups for c in posters[group])
        gated += ((rank_class, steady[resource], needed) for resource in reach.resources if resource in steady)
    while any(together.meddles(*use) for use in gated):
        pass
    return together.sets()


def _reaches(track: Track) -> Iterator[tuple[Reach, bool]]:
    """What each operation of a chain has to do with others, and whether it is steady."""
    for kind, often in zip(track.operations, track.often.tolist(), strict=True):
        yield from {operation.reach(): often for operation in kind}.items()


class _Unions:
    """Sets of classes that grow together."""

    def __init__(self, classes: set[int]):
        self._parent = {c: c for c in sorted(classes)}

    def root(self, c: int) -> int:
        while self._parent[c] != c:
            self._parent[c] = c = self._parent[self._parent[c]]
        return c

    def unite(self, first: int, *others: int) -> None:
        for other in others:
            self._parent[self.root(other)] = self.root(first)

    def meddles(self, rank_class: int, steady: int, needed: frozenset[int]) -> bool:
        """Whether *rank_class* may use what *steady* uses without meeting any of its island; then they are one now."""
        here = self.root(steady)
        if here in map(self.root, needed | {rank_class}):
            return False
        self.unite(steady, rank_class, *needed)
        return True

    def sets(self) -> list[frozenset[int]]:
        by_root: dict[int, set[int]] = defaultdict(set)
        for c in self._parent:
            by_root[self.root(c)].add(c)
        return [frozenset(some) for some in by_root.values()]
