"""
The attributes of graphs that are read, for all formats of graphs.
"""

from __future__ import annotations

from trainsim.importers.importer import read

GRAPH_KEYS = (
    read("graph", "keys of the topology: name, description, source, gpu, nvls, reserved_memory, and, dotted, keys of "
         "fabric, hosts, nvme, collectives and complexes (`fabric.kind`)"),
    read("nodes", "devices; `kind` is gpu, nvswitch, pcie, host, nic, nvme, leaf, spine or core (else the name tells: "
         "`node3.gpu0`), `node` the node that it belongs to, `bandwidth` a NIC's rate"),
    read("edges", "cables; `link` is a kind of trainsim/hardware/network.yaml, or nvlink or pcie for those of the GPU, "
         "`bandwidth` (bytes/s or 400Gbps) or `lanes` its rate each way, `latency` (seconds), `reachable`"),
)  # fmt: skip

GRAPH_NOTES = (
    "All nodes of a machine must be identical; a graph whose nodes differ is rejected, with the difference.",
    "An edge is a cable for both directions; if the file has both, they must agree.",
    "The type of an edge without `link` follows from its ends: NVLink between GPUs and NVSwitches, else PCIe.",
    "`fabric.kind` is used if the graph has it; otherwise the fabric follows from leaves and the cables above.",
)
