"""
Whether a machine is like one that ships, and where the two differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainsim.collectives.pattern import collective_time
from trainsim.hardware.cluster import Cluster, load_topology
from trainsim.hardware.topology import find_topology, topology_names
from trainsim.importers.findings import Remark
from trainsim.units import format_bandwidth

BUFFER = "1GiB"
MOST_ALIKE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """Machines that ship with the same GPU, as many of them in a node, and as many NICs of the same rate, each held
    against the one of *file*."""

    file: str

    def against(self, cluster: Cluster) -> tuple[Remark, ...]:
        """A remark for each of them, the likest first."""
        found = sorted(((len(differing), name, differing) for name, differing in _alike(cluster)))
        return tuple(
            Remark(key=name, words=f"like it: {words}" if words else "like it in all that is compared", place=self.file)
            for _, name, differing in found[:MOST_ALIKE]
            for words in ["; ".join(differing)]
        )

    def contradicted(self, cluster: Cluster) -> tuple[Remark, ...]:
        """Nothing: another machine, or another choice of rings, is no mistake."""
        return ()


def _alike(cluster: Cluster) -> Iterator[tuple[str, list[str]]]:
    """(Name, differences) of each machine that ships with the same GPUs and NICs in a node."""
    for name in topology_names():
        if find_topology(name).data.get("gpus_per_node") != cluster.gpus_per_node:
            continue
        other = load_topology(name)
        nics = (other.nics_per_node, other.fabric.nic_bandwidth)
        if other.gpu.name == cluster.gpu.name and nics == (cluster.nics_per_node, cluster.fabric.nic_bandwidth):
            yield name, differences(cluster, other)


def differences(cluster: Cluster, other: Cluster) -> list[str]:
    """In what a node of *cluster* differs from one of *other*: NVLinks, rings, the NIC of each GPU, and how long an
    all-reduce takes, of which a difference below 1 % is none."""
    told = []
    if cluster.node.count("nvswitch") != other.node.count("nvswitch"):
        told.append(f"{cluster.node.count('nvswitch')} NVSwitches, there {other.node.count('nvswitch')}")
    if abs(cluster.nvlink_bandwidth - other.nvlink_bandwidth) > 1e6:
        rates = format_bandwidth(cluster.nvlink_bandwidth), format_bandwidth(other.nvlink_bandwidth)
        told.append(f"NVLinks of {rates[0]} per GPU, there {rates[1]}")
    members = range(cluster.gpus_per_node)
    if _rings(cluster) != _rings(other):
        told.append("other rings")
    here, there = ([int(n) for n in one.routed.nic] for one in (cluster, other))
    if _together(here) != _together(there):
        told.append(f"NICs of GPUs {here}, there {there}")
    if cluster.gpus_per_node > 1:
        ours, theirs = (collective_time(one, "all_reduce", ranks=members, nbytes=BUFFER) for one in (cluster, other))
        if abs(ours / theirs - 1) >= 0.01:
            told.append(f"an all-reduce of {BUFFER} takes {ours / theirs - 1:+.0%}")
    return told


def _rings(cluster: Cluster) -> set[tuple[tuple[int, ...], float]]:
    import numpy as np

    found = cluster.rings(np.arange(cluster.gpus_per_node))
    return {(tuple(int(gpu) for gpu in order), round(share, 3)) for order, share in found}


def _together(nics: list[int]) -> set[frozenset[int]]:
    """GPUs that share a NIC, whatever its number."""
    return {frozenset(gpu for gpu, nic in enumerate(nics) if nic == one) for one in nics}
