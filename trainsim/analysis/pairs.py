"""Who sends how many bytes to whom: between ranks, or between nodes where these are many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainsim.analysis.communication import bytes_sent
from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.lanes import Floats, Ints, Lanes
from trainsim.contracts.groups import Messages, Peers
from trainsim.program.network import Network

MOST = 64
"""Ranks, nodes or groups of nodes that a table of pairs has at most."""
Sent = dict[tuple[str, Peers, str], Floats]
"""(Kind, communicator, operation) -> bytes that a rank of each class sends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SentBytes:
    """Bytes that senders (rows) send to receivers (columns) in one step, by kind of communication; ``names`` are what
    the rows and columns stand for."""

    names: tuple[str, ...]
    by_kind: Mapping[str, Floats]

    @property
    def total(self) -> Floats:
        """All kinds together."""
        return np.sum([*self.by_kind.values()], axis=0) if self.by_kind else np.zeros((len(self.names),) * 2)


def who_sends(lanes: Lanes, network: Network, most: int = MOST) -> SentBytes:
    """The traffic between ranks of a run, or between as few nodes together as leave *most* rows.

    The bytes are those of ``communication``: a rank of an all-to-all sends the same to every other one, in all other
    collectives to the next one, as on a ring that goes through one node after the other. Copies to hosts are not in it.
    """
    names, place = _bins(network, lanes.ranks, most)
    tables: defaultdict[str, Floats] = defaultdict(lambda: np.zeros((len(names), len(names))))
    for (kind, peers, operation), nbytes in _sent(lanes, network).items():
        per_rank = nbytes[lanes.trace.rank_class] / lanes.steps
        for source, target, share in _pairs(network, peers, operation):
            np.add.at(tables[kind], (place[source], place[target]), per_rank[source] * share)
    return SentBytes(names=names, by_kind={kind: tables[kind] for kind in COMMUNICATION if kind in tables})


def _bins(network: Network, ranks: int, most: int) -> tuple[tuple[str, ...], Ints]:
    """The names of the rows, and the row of each rank."""
    if ranks <= most:
        return tuple(f"rank {rank}" for rank in range(ranks)), np.arange(ranks)
    nodes, place = np.unique(network.job.cluster.node_of(network.gpu_of(np.arange(ranks))), return_inverse=True)
    size = -(-len(nodes) // most)
    first, last = nodes[::size].tolist(), [*(nodes[size::size] - 1).tolist(), int(nodes[-1])]
    names = (f"node {a}" if a == b else f"nodes {a} to {b}" for a, b in zip(first, last[: len(first)], strict=True))
    return tuple(names), np.asarray(place.ravel() // size, np.int64)


def _sent(lanes: Lanes, network: Network) -> Sent:
    """What a rank of each class sends in all of its operations of a kind."""
    labels = lanes.trace.labels
    moving = [k for k, label in enumerate(labels) if label.kind in COMMUNICATION and label.payloads]
    times = _times(lanes, np.array(moving, np.int64))
    out: Sent = {}
    for k, often in zip(moving, times.T, strict=True):
        for payload in labels[k].payloads:
            if network.has(payload.communicator):
                key = labels[k].kind, payload.communicator.anywhere, payload.operation
                nbytes = bytes_sent(payload, network.members(payload.communicator).shape[1])
                out[key] = out.get(key, np.zeros(len(often))) + nbytes * often
    return out


def _times(lanes: Lanes, labels: Ints) -> Floats:
    """How often a rank of each class has a span of each of *labels* [classes, labels]."""
    trace, flat = lanes.trace, lanes.trace.run_spans
    out = np.zeros((trace.classes, len(labels)))
    chains: list[list[Ints]] = [[] for _ in range(trace.classes)]
    for lane in lanes.all:
        chains[lane.owner].append(lane.run)
    for owner, runs in enumerate(chains):
        rows = np.bincount(np.concatenate([np.zeros(0, np.int64), *runs]), minlength=len(trace.runs))
        out[owner] = np.bincount(flat.label, np.repeat(rows, flat.size), len(trace.labels))[labels]
    return out


def _pairs(network: Network, peers: Peers, operation: str) -> list[tuple[Ints, Ints, float]]:
    """(Senders, receivers, part of what each sends) of all pairs."""
    members = network.members(peers)
    if isinstance(peers, Messages):
        return [(members[:, 0], members[:, 1], 1.0)]
    ring = np.take_along_axis(members, np.argsort(network.gpu_of(members), axis=1), axis=1)
    others = range(1, ring.shape[1]) if operation == "all_to_all" else range(1, 2)
    return [(ring.ravel(), np.roll(ring, -k, axis=1).ravel(), 1.0 / len(others)) for k in others]
