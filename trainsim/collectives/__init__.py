"""
How bytes move over a group of ranks: one file per algorithm. No clock here.

An algorithm says which rank sends what part to which; the machine says over which links; what is left is
arithmetic (``pattern``): how fast the whole goes, and what fraction of each link it takes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from trainsim.errors import UnknownName
from trainsim.registry import Registry

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter", "shift",
)  # fmt: skip


class Machine(Protocol):
    """What an algorithm has to know of a cluster: domains, routes, rates (bytes/s), constants of the fabric.

    A cluster of ``trainsim.hardware`` is one. What one rank sends another is spread evenly over ``flows_per_pair``
    flows, each with a route.
    """

    @property
    def ranks(self) -> int: ...
    @property
    def gpus_per_node(self) -> int: ...
    @property
    def flows_per_pair(self) -> int: ...
    @property
    def line_rate(self) -> Floats: ...
    @property
    def bandwidth(self) -> Floats: ...
    @property
    def is_network(self) -> Bools: ...
    @property
    def constants(self) -> Mapping[str, float]: ...
    @property
    def nvls(self) -> bool: ...
    @property
    def sharp(self) -> bool: ...
    def domain_of(self, rank: Ints, /) -> Ints: ...
    def rings(self, members: Ints, /) -> tuple[tuple[Ints, float], ...]: ...
    def routes(self, src: Ints, dst: Ints, flow: int = 0, /) -> tuple[Ints, Ints]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedGroups:
    """Groups as they lie in the machine; a *segment* is the part of a group inside one NVLink or PCIe domain.

    ``members`` [groups, size] has the ranks sorted by domain. Segments are numbered by group, then domain:
    ``first`` is a segment's first place in ``members.ravel()``, ``size`` its number of ranks. Per group,
    ``domains`` counts its segments and ``local`` is the size of its largest one.
    """

    machine: Machine
    members: Ints
    group: Ints
    first: Ints
    size: Ints
    domains: Ints
    local: Ints
    known: list[Any] = field(default_factory=list, repr=False)  # what traffic between them loads, once worked out

    @property
    def ranks(self) -> int:
        """Ranks per group."""
        return int(self.members.shape[1])


class Edges(NamedTuple):
    """Who sends to whom: ``share`` is bytes on the edge per byte of ``factor * S`` of the group, as columns."""

    group: Ints
    src: Ints
    dst: Ints
    share: Floats


def joined(parts: Sequence[Edges]) -> Edges:
    """All edges of *parts*."""
    return parts[0] if len(parts) == 1 else Edges(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """``edges(operation, placement)`` is the traffic; ``latency``, ``ramp`` and ``chain`` are seconds per group.

    ``chain`` (None: none) is what the steps from rank to rank take that large buffers pay and small ones do not.
    ``small_rate`` names the constant that says at which part of its rate it carries small buffers instead (empty: the
    bytes per step alone decide, ``chunk_bytes``). ``steps`` (None: it knows no protocols) says whose protocols it has,
    and per group how many steps one after the other within domains and between them.
    ``fits`` says which groups the algorithm can serve (None: all); ``needs`` says so in words. ``automatic`` says which
    of these a library would give it by itself (None: all): only those are weighed by ``auto``.
    """

    operations: tuple[str, ...]
    edges: Callable[[str, PlacedGroups], Edges]
    latency: Callable[[str, PlacedGroups], Floats]
    ramp: Callable[[str, PlacedGroups], Floats]
    chain: Callable[[str, PlacedGroups], Floats] | None = None
    small_rate: str = ""
    steps: Callable[[str, PlacedGroups], tuple[str, Floats, Floats]] | None = None
    fits: Callable[[PlacedGroups], Bools] | None = None
    needs: str = ""
    automatic: Callable[[str, PlacedGroups], Bools] | None = None


algorithms: Registry[Algorithm] = Registry("collective algorithm", __name__)


def factor(operation: str, ranks: int) -> float:
    """Bytes that every rank must send, per byte of the buffer, whatever the algorithm.

    In a shift every rank sends its buffer to the next one of a ring and gets that of the one before. A gather or a
    scatter has a root, the first rank of the group, which gets or sends all parts but its own.

    >>> factor("all_reduce", 8), factor("all_gather", 4), factor("reduce", 4), factor("shift", 4)
    (1.75, 0.75, 1.0, 1.0)
    """
    if operation not in OPERATIONS:
        raise UnknownName("collective operation", operation, OPERATIONS)
    if ranks == 1:
        return 0.0
    if operation in ("broadcast", "reduce", "shift"):
        return 1.0
    return (2.0 if operation == "all_reduce" else 1.0) * (ranks - 1) / ranks
