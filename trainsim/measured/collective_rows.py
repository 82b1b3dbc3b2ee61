"""The collectives of a step by operation, message size and group: how often, how long, how fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainsim.analysis.analysis import Analysis
from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.contracts.groups import Group, Peers, Within
from trainsim.contracts.instructions import Payload

DIGITS = 2
"""Of the bytes of a message: those that agree in so many are one row."""


class CollectiveKey(NamedTuple):
    """What is compared with each other: kind, operation, ranks of the group (0: not told), bytes of the buffer."""

    kind: str
    operation: str
    size: int
    nbytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveUse:
    """One row of one of the two, per rank and step: how many, seconds of all together, and of those in which peers were
    late. ``network`` is the part of what is sent that leaves a node, where that is known."""

    count: float
    seconds: float
    late: float
    network: float

    @property
    def mean(self) -> float:
        """Seconds of one."""
        return self.seconds / self.count if self.count else 0.0

    def bandwidth(self, nbytes: float) -> float:
        """Bytes/s of the buffer (algorithmic bandwidth)."""
        return nbytes / self.mean if self.mean else 0.0


SizeOf = Callable[[Peers, str], tuple[int, float]]


def collective_uses(analysis: StepAnalysis, ranks: Sequence[int]) -> dict[CollectiveKey, CollectiveUse]:
    """The collectives of *ranks*, of the mean rank and one step."""
    size_of = analysis.hops if isinstance(analysis, Analysis) else _told
    trace = analysis.trace
    keys = [_key(label.kind, label.payloads, size_of) for label in trace.labels]
    found: dict[CollectiveKey, list[float]] = {}
    for rank in ranks:
        for chain in trace.chain_names(rank):
            spans = trace.spans(rank, chain)
            columns = (np.ones(len(spans.label)), spans.end - spans.start, spans.start - spans.posted)
            sums = np.stack([np.bincount(spans.label, column, len(keys)) for column in columns], axis=1)
            for label in np.flatnonzero(sums[:, 0]).tolist():
                entry = keys[label]
                if entry:
                    row = found.setdefault(entry[0], [0.0, 0.0, 0.0, entry[1]])
                    for k in range(3):
                        row[k] += float(sums[label, k]) / len(ranks) / analysis.steps
    return {k: CollectiveUse(count=v[0], seconds=v[1], late=v[2], network=v[3]) for k, v in found.items()}


def _told(peers: Peers, operation: str) -> tuple[int, float]:
    """Ranks of a group as a file tells them."""
    part = peers.part if isinstance(peers, Group) else None
    return (part.size if isinstance(part, Within) else 0 if isinstance(peers, Group) else 2), 0.0


def _key(kind: str, payloads: Sequence[Payload], size_of: SizeOf) -> tuple[CollectiveKey, float] | None:
    if not payloads or kind not in COMMUNICATION:
        return None
    first = payloads[0]
    size, network = size_of(first.communicator, first.operation)
    nbytes = sum(payload.nbytes for payload in payloads)
    return CollectiveKey(kind, first.operation, size, float(f"{nbytes:.{DIGITS - 1}e}")), network
