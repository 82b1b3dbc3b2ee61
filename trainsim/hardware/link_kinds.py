"""Kinds of links: what a port, a cable or an uplink is called, wherever it is in the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainsim.hardware.node import Link, kind_of

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster

Ints = npt.NDArray[np.int64]

NIC, LEAF_UPLINK, POD_UPLINK = "NIC", "leaf uplink", "pod uplink"
NETWORK = (NIC, LEAF_UPLINK, POD_UPLINK)
"""The kinds of links between nodes."""
FAMILIES = {
    "nvlink": "NVLink",
    "c2c": "C2C",
    "socket": "socket link",
    "network": NIC,
    "memory": "host memory",
    "flash": "drive",
}
PORTS = {"gpu": "GPU PCIe", "nic": "NIC PCIe", "nvme": "drive PCIe"}
"""What a PCIe link is called by the device at one of its ends."""


def link_kinds(cluster: Cluster) -> tuple[tuple[str, ...], Ints]:
    """The kinds of links that a machine has, and the number of the kind of every link.

    >>> from trainsim.hardware.cluster import load_topology
    >>> link_kinds(load_topology("dgx_h100", nodes=64))[0][:6]
    ('GPU PCIe', 'NIC', 'NIC PCIe', 'NVLink', 'PCIe', 'drive')
    """
    local = [_kind(link, cluster) for link in cluster.local_links]
    fabric = cluster.fabric
    above = [
        LEAF_UPLINK if switch < fabric.uplinked else POD_UPLINK
        for switch, links in enumerate(fabric.links_per_switch.tolist())
        for _ in range(2 * links)
    ]
    names = tuple(sorted({*local, *above}))
    of = np.concatenate(
        [np.tile([names.index(kind) for kind in local], cluster.nodes), [names.index(k) for k in above]]
    )
    return names, of.astype(np.int64)


def _kind(link: Link, cluster: Cluster) -> str:
    if link.family != "pcie":
        name = FAMILIES[link.family]
        infinity = link.family == "nvlink" and any(cable.kind.startswith("infinity") for cable in cluster.node.cables)
        return "Infinity Fabric" if infinity else name
    ends = {kind_of(link.src), kind_of(link.dst)}
    return next((name for device, name in PORTS.items() if device in ends), "PCIe")
