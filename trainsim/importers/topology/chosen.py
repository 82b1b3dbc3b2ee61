"""
The rings that NCCL has chosen for a node, held against those that are found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainsim.hardware.cluster import Cluster
from trainsim.importers.findings import Remark

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclChannels:
    """The channels of one graph of NCCL: orders of GPUs, (GPU, NIC) at the head of each if there is one, and GB/s of a
    channel inside a node and between nodes."""

    orders: tuple[Order, ...]
    nics: tuple[tuple[int, int] | None, ...]
    inside: float
    between: float
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRings:
    """The rings of *file*."""

    file: str
    rings: tuple[NcclChannels, ...]

    def against(self, cluster: Cluster) -> tuple[Remark, ...]:
        """Whether *cluster* has the same GPUs, rings and NICs, and what its rings carry."""
        return tuple(
            Remark(key=key, words=words, place=f"{self.file}:{way.line}")
            for way in self.rings
            for key, words in (
                ("rings", _rings(way, cluster)),
                ("rates", _rates(way, cluster)),
                ("NICs", _nics(way, cluster)),
            )
            if words
        )

    def contradicted(self, cluster: Cluster) -> tuple[Remark, ...]:
        """Nothing: another machine, or another choice of rings, is no mistake."""
        return ()


def _rings(way: NcclChannels, cluster: Cluster) -> str:
    gpus = cluster.gpus_per_node
    wrong = [order for order in way.orders if sorted(order) != list(range(gpus))]
    if wrong:
        return f"a ring over GPUs {', '.join(map(str, wrong[0]))}, where a node here has {gpus} GPUs: not compared"
    found = cluster.rings(np.arange(gpus))
    ours = {_cycle(tuple(int(gpu) for gpu in order)) for order, _ in found}
    theirs = {_cycle(order) for order in way.orders}
    if _is_switched(cluster):
        return f"{len(theirs)} different rings there; on a switch all orders are equivalent, here {len(ours)}"
    same = len(ours & theirs)
    return f"{len(theirs)} different rings there, {len(ours)} here, {same} of them the same" + (
        "" if ours == theirs else f": there {_shown(theirs - ours)}; here {_shown(ours - theirs)}"
    )


def _rates(way: NcclChannels, cluster: Cluster) -> str:
    if cluster.gpus_per_node < 2:
        return ""
    theirs = way.inside * len(way.orders)
    return f"{theirs:g} GB/s in all rings inside a node there, {ring_rate(cluster) / 1e9:.0f} GB/s reached here"


def _nics(way: NcclChannels, cluster: Cluster) -> str:
    heads = dict(pair for pair in way.nics if pair is not None)
    if not heads or not cluster.has_network:
        return ""
    ours = {gpu: int(cluster.routed.nic[gpu]) for gpu in heads if gpu < cluster.gpus_per_node}
    other = [f"GPU {gpu} uses NIC {heads[gpu]} there, {nic} here" for gpu, nic in ours.items() if nic != heads[gpu]]
    return "; ".join(other) if other else f"the same NIC for all {len(ours)} GPUs at the head of a ring"


def ring_rate(cluster: Cluster) -> float:
    """Bytes/s that all rings over the GPUs of a node carry together, each link shared by those that cross it."""
    load = np.zeros(cluster.links)
    for order, share in cluster.rings(np.arange(cluster.gpus_per_node)):
        _, links = cluster.routes(order, np.roll(order, -1))
        np.add.at(load, links, share)
    used = load > 0
    return float((cluster.bandwidth[used] / load[used]).min()) if used.any() else 0.0


def _is_switched(cluster: Cluster) -> bool:
    return bool(cluster.node.count("nvswitch"))


def _cycle(order: Order) -> frozenset[frozenset[int]]:
    """A ring by its neighbours, whatever it begins with and which way it goes."""
    return frozenset(frozenset(pair) for pair in pairwise((*order, order[0])))


def _shown(cycles: Sequence[frozenset[frozenset[int]]] | set[frozenset[frozenset[int]]]) -> str:
    """Rings as their neighbours, the first few."""
    shown = [" ".join("-".join(map(str, sorted(pair))) for pair in sorted(cycle, key=sorted)) for cycle in cycles]
    return "; ".join(sorted(shown)[:2]) or "none"
