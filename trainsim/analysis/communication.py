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
from trainsim.contracts.instructions import Meet, Program, Send

WIRE = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "broadcast": 1.0}
"""Bytes that each of n ranks must send, in units of (n - 1) / n of the full buffer (nccl-tests,
PERFORMANCE.md)."""
COPIES = ("host_out", "host_in", "nvme_read", "nvme_write")
"""Offloads that move bytes, of one rank each; the host's own work moves none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One kind of communication, of the mean rank in one step: bytes sent, the part of them that leaves the node (ring
    order), and the number of collectives and of messages sent.

    ``time_s`` is the time of all operations in which it takes part (of a message: sender and receiver), ``waiting_s``
    what it waited for late peers before they could begin, ``exposed_s`` what no computation hides of the two:
    ``exposed_s <= time_s + waiting_s``.
    """

    bytes_per_rank: float = 0.0
    bytes_inter_node_per_rank: float = 0.0
    time_s: float = 0.0
    waiting_s: float = 0.0
    exposed_s: float = 0.0
    operations: float = 0.0


class Groups(Protocol):
    """Who talks to whom: for a communicator, ranks per group and the part of the hops that leaves a node."""

    def __call__(self, communicator: Peers) -> tuple[int, float]: ...


def communication(
    lanes: Lanes, exposed: Mapping[str, float], waiting: Mapping[str, float], groups: Groups
) -> dict[str, Traffic]:
    """Traffic of every kind in COMMUNICATION; *exposed* and *waiting* are seconds of the mean rank, from the
    breakdown."""
    sent = {kind: np.zeros(3) for kind in COMMUNICATION}
    weight = np.bincount(lanes.program_of, minlength=len(lanes.programs)) / lanes.ranks / lanes.steps
    for program, share in zip(lanes.programs, weight.tolist(), strict=True):
        for (kind, nbytes, crossing), count in _operations(program, groups).items():
            if kind in sent:
                sent[kind] += share * count * np.array([nbytes, nbytes * crossing, 1.0])
    time = np.zeros(len(COLUMN))
    for lane in lanes.all:
        ends = 2 if lane.is_messages else 1
        time += lane.seconds.sum(0) * float(lanes.count[lane.owner]) * ends / lanes.ranks / lanes.steps
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


def _operations(program: Program, groups: Groups) -> Counter[tuple[str, float, float]]:
    """(kind, bytes sent by this rank, part of them between nodes) of every collective and message, with its
    number."""
    tasks: Counter[int] = Counter()
    templates = {}
    for chain in program.chains.values():
        for task in chain:
            tasks[id(task.template)] += 1
            templates[id(task.template)] = task.template
    out: Counter[tuple[str, float, float]] = Counter()
    for key, count in tasks.items():
        for i in templates[key].instructions:
            if isinstance(i, Meet):
                size, crossing = groups(i.communicator)
                sent = WIRE.get(i.operation, 1.0) * (size - 1) / max(size, 1)
                out[i.kind, i.nbytes * (1.0 if i.operation in COPIES else sent), crossing] += count
            elif isinstance(i, Send) and i.nbytes > 0:  # the others carry no data: they only keep an order
                out[i.kind, i.nbytes, groups(i.communicator)[1]] += count
    return out
