"""
What is in a cluster, in words: devices, links with their bandwidths, the network, where the figures come from.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainsim.hardware.constants import collective_defaults, collective_unit
from trainsim.hardware.fabric import FABRICS
from trainsim.hardware.node import kind_of
from trainsim.units import format_bandwidth, format_bytes, format_flops, format_number_of, format_time

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster

WIDTH = 110


def describe(cluster: Cluster) -> list[str]:
    """Lines of text, at most about 110 wide, for a person.

    >>> from trainsim.hardware.cluster import load_topology
    >>> describe(load_topology("pcie_box", nodes=2))[1].split(" (")[0]
    '2 nodes x 8 GPUs = 16 GPUs, l40s'
    """
    return [
        f"{cluster.name}: {cluster.description}",
        _gpus(cluster),
        "",
        "In a node: " + ", ".join(f"{number} {kind}" for kind, number in cluster.node.devices),
        *_table(_cables(cluster)),
        "",
        *_network(cluster),
        *_collectives(cluster),
        f"Resources: {cluster.links} directed links, {cluster.links_per_node} per node",
        *textwrap.wrap(f"Source: {cluster.source}", WIDTH, subsequent_indent="  "),
    ]


def _gpus(cluster: Cluster) -> str:
    gpu = cluster.gpu
    nodes = f"{cluster.nodes} nodes x {cluster.gpus_per_node} GPUs = " if cluster.nodes > 1 else ""
    peak = format_flops(gpu.half_peak)
    kept = f", others keep {format_bytes(cluster.reserved_memory)}" if cluster.reserved_memory else ""
    seen = f"{format_bytes(gpu.usable_memory)} of {format_bytes(gpu.memory)} usable{kept}"
    memory = f"{seen}, at {format_bandwidth(gpu.memory_bandwidth)}"
    return f"{nodes}{format_number_of(cluster.ranks, 'GPU')}, {gpu.name} ({peak} in 16 bits; {memory})"


def _cables(cluster: Cluster) -> Iterable[tuple[str, ...]]:
    """A header and a row per sort of cable, both ends' kinds and rates alike; then what each GPU has in all."""
    yield ("link", "between", "number", "line rate each way", "reached")
    sorts = Counter((c.kind, f"{kind_of(c.a)} - {kind_of(c.b)}", c.bandwidth, c.reachable) for c in cluster.node.cables)
    for (kind, ends, rate, reachable), number in sorts.items():
        yield kind, ends, str(number), format_bandwidth(rate), f"{format_bandwidth(rate * reachable)} ({reachable:.0%})"
    links = [link for link in cluster.node.links if link.src == "gpu0" and link.family == "nvlink"]
    if links:
        rate, reached = sum(link.line_rate for link in links), sum(link.bandwidth for link in links)
        yield (
            "nvlink",
            "all of a GPU",
            "",
            format_bandwidth(rate),
            f"{format_bandwidth(reached)} ({reached / rate:.0%})",
        )


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _network(cluster: Cluster) -> list[str]:
    fabric = cluster.fabric
    if not cluster.has_network:
        return ["Network: none"]
    rate = f"{fabric.nics} NICs of {fabric.nic_bandwidth * 8e-9:g} Gb/s"
    reached = f"{format_bandwidth(fabric.nic_bandwidth * fabric.reachable)} each way reached ({fabric.reachable:.0%})"
    shared = cluster.gpus_per_node / fabric.nics
    users = f"one for {shared:g} GPUs" if shared > 1 else "one per GPU"
    lines = [f"Network: {fabric.kind} ({FABRICS[fabric.kind]})", f"  {rate} per node, {users}; {reached}"]
    if fabric.uplinked:
        up, spines = format_bandwidth(fabric.leaf_uplink), fabric.spine_count
        lines.append(
            f"  {fabric.leaves} leaves of {fabric.ports_per_leaf} ports ({fabric.nodes_per_leaf} nodes), "
            f"{up} up from each ({fabric.oversubscription:g} : 1); {spines} spine{'s' * (spines > 1)}"
        )
    else:
        lines.append(f"  {fabric.leaves} switch without uplinks")
    if fabric.pods:
        up = format_bandwidth(fabric.pod_uplink)
        ratio = f"{fabric.pod_oversubscription:g} : 1"
        lines.append(f"  {fabric.pods} pods of {fabric.nodes_per_pod} nodes under a core, {up} up from each ({ratio})")
    return lines


def _collectives(cluster: Cluster) -> list[str]:
    """The constants in which this machine differs from the defaults."""
    own = [
        f"{name} {format_time(value) if collective_unit(name) == 's' else f'{value:g}'}"
        for name, value in cluster.constants.items()
        if value != collective_defaults()[name]
    ]
    multicast = "with switch multicast (NVLS)" if cluster.nvls else "without switch multicast"
    text = f"Collectives: {multicast}" + (f"; own constants: {', '.join(own)}" if own else "")
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")
