"""What is sent: bytes, operations and time of each kind of communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainsim.analysis.kinds import COLUMN, COMMUNICATION
from trainsim.analysis.lanes import Lanes
from trainsim.contracts.groups import Peers
from trainsim.contracts.instructions import SEND, Payload

WIRE = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "broadcast": 1.0}
"""Bytes that each of n ranks must send, in units of (n - 1) / n of the full buffer (nccl-tests,
PERFORMANCE.md)."""
COPIES = ("host_out", "host_in", "nvme_read", "nvme_write")
"""Offloads that move bytes, of one rank each; the host's own work moves none."""
WHOLE = (*COPIES, SEND, "shift")
"""Operations in which a rank sends all of its buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One kind of communication, of the mean rank in one step: bytes sent, the part of them that leaves the
    node (on a ring, or in an all-to-all), and the number of collectives and of messages sent.

    ``time_s`` is the time of the collectives in which it takes part and of the messages that it sends, ``waiting_s``
    what it waited for late peers before they could begin, ``exposed_s`` the exposed part of the two:
    ``exposed_s <= time_s + waiting_s``, for messages twice that, since both ends may wait for one.
    """

    bytes_per_rank: float = 0.0
    bytes_inter_node_per_rank: float = 0.0
    time_s: float = 0.0
    waiting_s: float = 0.0
    exposed_s: float = 0.0
    operations: float = 0.0


class Groups(Protocol):
    """Who talks to whom: for an operation of a communicator, ranks per group and the part of what they send that leaves
    a node."""

    def __call__(self, communicator: Peers, operation: str) -> tuple[int, float]: ...


def communication(
    lanes: Lanes, exposed: Mapping[str, float], waiting: Mapping[str, float], groups: Groups
) -> dict[str, Traffic]:
    """Traffic of every kind in COMMUNICATION; *exposed* and *waiting* are seconds of the mean rank, from the
    breakdown."""
    sent = {kind: np.zeros(3) for kind in COMMUNICATION}
    for (kind, nbytes, crossing), count in sorted(_operations(lanes, groups).items()):
        if kind in sent:
            sent[kind] += count / lanes.ranks / lanes.steps * np.array([nbytes, nbytes * crossing, 1.0])
    time = np.zeros(len(COLUMN))
    for lane in lanes.all:
        time += lane.seconds.sum(0) * float(lanes.count[lane.owner]) / lanes.ranks / lanes.steps
    return {
        kind: Traffic(
            bytes_per_rank=float(row[0]),
            bytes_inter_node_per_rank=float(row[1]),
            operations=float(row[2]),
            time_s=float(time[COLUMN[kind]]),
            waiting_s=waiting[kind],
            exposed_s=exposed[kind],
        )
        for kind, row in sent.items()
    }


def _operations(lanes: Lanes, groups: Groups) -> Counter[tuple[str, float, float]]:
    """(Kind, bytes that a rank sends, part of them between nodes) of all collectives and messages, with the number of
    ranks that take part, or send, times how often."""
    rows = np.zeros(len(lanes.trace.runs), np.int64)
    for lane in lanes.all:
        rows += np.bincount(lane.run, minlength=len(rows)) * lanes.count[lane.owner]
    payloads: Counter[tuple[str, Payload]] = Counter()
    for run, count in zip(lanes.trace.runs, rows.tolist(), strict=True):
        for label in run.labels:
            for payload in label.payloads:
                payloads[label.kind, payload] += count
    out: Counter[tuple[str, float, float]] = Counter()
    for (kind, payload), count in payloads.items():
        out[kind, *_sent(payload, groups)] += count
    return out


def _sent(payload: Payload, groups: Groups) -> tuple[float, float]:
    """(Bytes that each rank sends, part of them between nodes)."""
    size, crossing = groups(payload.communicator, payload.operation)
    return bytes_sent(payload, size), crossing


def bytes_sent(payload: Payload, ranks: int) -> float:
    """Bytes that each of *ranks* sends in an operation.

    >>> from trainsim.contracts.groups import TENSOR
    >>> bytes_sent(Payload(TENSOR, "all_reduce", 8.0), 4)
    12.0
    """
    if payload.operation in WHOLE:
        return payload.nbytes
    return payload.nbytes * WIRE.get(payload.operation, 1.0) * (ranks - 1) / max(ranks, 1)
