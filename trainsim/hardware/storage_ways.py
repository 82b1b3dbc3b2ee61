"""
Ways of offloaded bytes through one node: between a GPU and its host's memory, between that memory and the drives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidTopology, UnknownName
from trainsim.hardware.node import Node
from trainsim.hardware.routing import Paths, least_ways, link_indices

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

OFFLOADS = ("host_out", "host_in", "host_step", "nvme_read", "nvme_write")
"""GPU to host memory, host memory to GPU, work on bytes of host memory, drives to host memory and back."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StorageWays:
    """What the bytes of one GPU load, as columns: ``gpu``, ``link`` of the node, ``share`` of the bytes on it, and
    ``parts``: one rank alone reaches that fraction of the link."""

    gpu: Ints
    link: Ints
    share: Floats
    parts: Ints


@cache
def storage_ways(node: Node, operation: str) -> StorageWays:
    """How *operation* (one of OFFLOADS) moves the bytes of each GPU of *node*.

    A GPU uses its nearest host. Files are striped over all drives that the host reaches. Raises UnknownName, and
    InvalidTopology that says what is missing.
    """
    if operation not in OFFLOADS:
        raise UnknownName("kind of offload", operation, OFFLOADS)
    graph = node.link_graph
    first = len(node.cabled)
    store = {(link.src, link.family): first + k for k, link in enumerate(node.stores)}
    rows: list[tuple[int, int, float, int]] = []
    for gpu in range(node.count("gpu")):
        host, way = _nearest_host(node, gpu)
        memory = store[host, "memory"]
        assert node.host is not None
        rows.append((gpu, memory, 1.0, node.host.numa))
        if operation in ("host_out", "host_in"):
            crossed = link_indices(graph, way if operation == "host_out" else way[::-1])
            rows += [(gpu, link, 1.0, 1) for link in crossed]
        elif operation != "host_step":
            rows += [(gpu, *use, 1) for use in _stripes(node, host, store, operation)]
    gpus, links, shares, parts = zip(*rows, strict=True)
    return StorageWays(
        gpu=np.array(gpus, np.int64),
        link=np.array(links, np.int64),
        share=np.array(shares, np.float64),
        parts=np.array(parts, np.int64),
    )


def _nearest_host(node: Node, gpu: int) -> tuple[str, list[str]]:
    """The host of a GPU, of least latency, and the way to it."""
    distance, ways = least_ways(node.link_graph, f"gpu{gpu}")
    hosts = [name for name in ways if _is(node, name, "host")]
    if node.host is None or not hosts:
        raise InvalidTopology(
            f"there is no host memory that gpu{gpu} could use: "
            "node.devices.host, links to it and hosts.memory_bandwidth describe one"
        )
    host = min(hosts, key=lambda name: (distance[name], name))
    return host, ways[host]


def _stripes(node: Node, host: str, store: dict[tuple[str, str], int], operation: str) -> list[tuple[int, float]]:
    """(Link, share of the bytes) on the ways between *host* and the drives that it reaches."""
    ways = {name: way for name, way in _drives(node).items() if host in way}
    if node.drive is None or not ways:
        raise InvalidTopology(
            f"{host} reaches no NVMe drive with known rates: node.devices.nvme, links to it and nvme.kind describe some"
        )
    reading = operation == "nvme_read"
    slower = 1.0 if reading else node.drive.read / node.drive.write
    loads: dict[int, float] = {}
    for name, ends in ways.items():
        way = ends[host]
        for link in link_indices(node.link_graph, way if reading else way[::-1]):
            loads[link] = loads.get(link, 0.0) + 1 / len(ways)
        loads[store[name, "flash"]] = slower / len(ways)
    return list(loads.items())


def _drives(node: Node) -> dict[str, Paths]:
    """Ways from each drive."""
    graph = node.link_graph
    return {name: least_ways(graph, name)[1] for name in graph if _is(node, name, "nvme")}


def _is(node: Node, name: str, kind: str) -> bool:
    """Whether a device or complex of the graph is of *kind*."""
    return bool(node.link_graph.nodes[name]["kind"] == kind)
