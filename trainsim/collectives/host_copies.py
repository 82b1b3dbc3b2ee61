"""
Copies between GPUs, host memory and drives, and work of the host on its memory: each rank for itself.

They share links with everything else: a copy to the host crosses the same PCIe switch as what goes to a NIC, all ranks
of a host share its memory, and all that use a drive share the drive.
"""

from __future__ import annotations

import numpy as np

from trainsim.collectives import Floats, Ints
from trainsim.contracts.system import Pattern
from trainsim.hardware.cluster import Cluster
from trainsim.hardware.storage import storage_latency

LATENCY = {
    "host_out": "copy",
    "host_in": "copy",
    "host_step": "step",
    "nvme_read": "drive",
    "nvme_write": "drive",
}
"""What each kind of offload waits for before its first byte."""


def offload_pattern(cluster: Cluster, operation: str, ranks: Ints, *, bandwidth: Floats | None = None) -> Pattern:
    """How *operation* (a key of LATENCY) moves the bytes of each of *ranks*: a group of one rank each.

    *bandwidth* (bytes/s of every link) replaces the machine's own. Raises InvalidTopology where there is no such
    storage.

    >>> from trainsim.hardware.cluster import load_topology
    >>> copy = offload_pattern(load_topology("dgx_a100", nodes=1), "host_out", np.arange(1))
    >>> round(1e9 / copy.seconds(0, 1e9)[0] / 1e9, 1)  # GB/s over PCIe Gen4
    26.1
    """
    group, link, share, parts = cluster.storage(operation, ranks)
    rate = (cluster.bandwidth if bandwidth is None else bandwidth)[link]
    fastest = np.full(len(ranks), np.inf)
    np.minimum.at(fastest, group, rate / (share * parts))
    latency = storage_latency(LATENCY[operation])
    return Pattern(
        factor=np.ones(len(ranks)),
        bandwidth=fastest,
        latency=np.full(len(ranks), latency),
        ramp=np.zeros(len(ranks)),
        chain=np.zeros(len(ranks)),
        chain_bytes=np.zeros(len(ranks)),
        use_group=group,
        use_resource=link,
        use_amount=share * fastest[group] / rate,
        use_hold=np.zeros(len(group), bool),
    )
