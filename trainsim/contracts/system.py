"""
The ranks, the groups they meet in and the resources they share, as numpy columns: what folding and the engine see.

Every capacity is 1: a load is a fraction of a resource. Links come first, then the SMs of each rank, then the HBM
of each rank; ``sm`` and ``hbm`` say where.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainsim.contracts.groups import Peers
from trainsim.contracts.instructions import Program

FLOOR = 0.05  # of a resource: what holds leave to the others at worst, so that nothing ever stands still
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pattern:
    """How one operation moves bytes over every group of a communicator; all arrays are columns.

    Per group: a buffer of S bytes moves ``x = S * factor / bandwidth`` seconds at full speed and takes, alone,
    ``latency + x + 2 * sqrt(x * ramp) + chain * S / (S + chain_bytes)`` seconds (factor without unit, bandwidth in
    bytes/s, latency, ramp and chain in seconds): the last is what the steps of a chain of ranks take beside their
    bytes. Per use: while bytes move at full speed, group ``use_group`` takes the fraction ``use_amount`` of resource
    ``use_resource``; where ``use_hold`` is true it takes it for as long as it runs, however slowly.
    """

    factor: Floats
    bandwidth: Floats
    latency: Floats
    ramp: Floats
    chain: Floats
    chain_bytes: Floats
    use_group: Ints
    use_resource: Ints
    use_amount: Floats
    use_hold: Bools

    def only(self, keep: Bools) -> Pattern:
        """The same operation with those uses alone for which *keep* (one per use) is true."""
        if keep.all():
            return self
        return replace(
            self,
            use_group=self.use_group[keep],
            use_resource=self.use_resource[keep],
            use_amount=self.use_amount[keep],
            use_hold=self.use_hold[keep],
        )

    def seconds(self, group: int, nbytes: float) -> tuple[float, float]:
        """(Seconds alone, share of them in which bytes move at full speed) of one group's operation.

        >>> one = np.ones(1)
        >>> none = np.zeros(0, np.int64)
        >>> p = Pattern(factor=2 * one, bandwidth=100 * one, latency=one, ramp=0 * one, chain=0 * one,
        ...             chain_bytes=0 * one, use_group=none, use_resource=none, use_amount=np.zeros(0),
        ...             use_hold=np.zeros(0, bool))
        >>> p.seconds(0, 150.0)
        (4.0, 0.75)
        """
        x = nbytes * float(self.factor[group]) / float(self.bandwidth[group])
        total = float(self.latency[group]) + x + 2.0 * (x * float(self.ramp[group])) ** 0.5
        if nbytes > 0.0 and self.chain[group] > 0.0:
            total += float(self.chain[group]) * nbytes / (nbytes + float(self.chain_bytes[group]))
        return total, (x / total if total > 0 else 0.0)

    @property
    def timing(self) -> tuple[Floats, ...]:
        """The columns that say how long a group takes."""
        return self.factor, self.bandwidth, self.latency, self.ramp, self.chain, self.chain_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Communicator:
    """Groups of ranks, or pairs, and what they carry out together.

    ``group_of[label][rank]`` is the group that the rank belongs to with that part, or -1. A collective has the one
    label 0. A message has two: 0 sends and posts, 1 receives and is passive.
    """

    group_of: tuple[Ints, ...]
    groups: int
    patterns: dict[str, Pattern]

    @property
    def is_message(self) -> bool:
        return len(self.group_of) == 2


class Outage(NamedTuple):
    """A resource that lacks the part ``lost`` of its capacity from ``since`` to ``until``, seconds after the start."""

    resource: int
    since: float
    until: float
    lost: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class System:
    """Everything that takes part in a step. ``slow`` multiplies the kernel times of a rank.

    ``owner[resource]`` is a rank without whose own post or kernel nothing uses the resource, or -1.
    ``sm[rank]`` and ``hbm[rank]`` are resources, or -1 where they can never be full. ``outages`` of one resource do not
    overlap, and nobody owns it.
    """

    programs: tuple[Program, ...]
    program_of: Ints
    slow: Floats
    communicators: dict[Peers, Communicator]
    resources: int
    sm: Ints
    hbm: Ints
    owner: Ints
    outages: tuple[Outage, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ranks(self) -> int:
        return len(self.program_of)
