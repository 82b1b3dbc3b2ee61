"""Each part of a machine twice as fast, as a job of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from trainsim.contracts.job import Job
from trainsim.frameworks.pace import paced
from trainsim.hardware.cluster import Cluster
from trainsim.hardware.gpu import GPU

NETWORK_LATENCY = (
    "message_network_latency", "ring_network_step", "chunk_network_step", "network_hop", "ramp_network",
)  # fmt: skip
"""Constants of collectives and messages that are times of the network between nodes."""
KERNELS = ("forward", "backward", "recompute")


BETWEEN_NODES = ("network", "latency")


def faster_parts(job: Job) -> tuple[FasterPart, ...]:
    """Those that *job* has."""
    missing = {*(BETWEEN_NODES if job.cluster.nodes == 1 else ()), *(() if job.uses_host else ("storage",))}
    return tuple(part for name, part in FASTER_PARTS.items() if name not in missing)


class FasterPart(NamedTuple):
    """Something that could be faster: in words, how, and the kinds of spans on the critical path that it carries."""

    title: str
    faster: Callable[[Job], Job]
    kinds: tuple[str, ...]


def _gpu(job: Job, gpu: GPU) -> Job:
    return replace(job, cluster=replace(job.cluster, gpu=gpu))


def _arithmetic(job: Job) -> Job:
    gpu = job.cluster.gpu
    return _gpu(job, replace(gpu, flops={precision: 2 * speed for precision, speed in gpu.flops.items()}))


def _memory(job: Job) -> Job:
    gpu = job.cluster.gpu
    return _gpu(job, replace(gpu, memory_bandwidth=2 * gpu.memory_bandwidth))


def _local(job: Job) -> Job:
    """Every cable inside the nodes."""
    node = job.cluster.node
    cables = tuple(replace(cable, bandwidth=2 * cable.bandwidth) for cable in node.cables)
    return replace(job, cluster=replace(job.cluster, node=replace(node, cables=cables)))


def _storage(job: Job) -> Job:
    """Memory of the hosts, and drives."""
    node = job.cluster.node
    host = node.host and replace(node.host, bandwidth=2 * node.host.bandwidth)
    drive = node.drive and replace(node.drive, read=2 * node.drive.read, write=2 * node.drive.write)
    return replace(job, cluster=replace(job.cluster, node=replace(node, host=host, drive=drive)))


def _network(job: Job) -> Job:
    """NICs, and with them all tiers above."""
    fabric = job.cluster.fabric
    return replace(job, cluster=replace(job.cluster, fabric=replace(fabric, nic_bandwidth=2 * fabric.nic_bandwidth)))


def _latency(job: Job) -> Job:
    cluster: Cluster = job.cluster
    halved = tuple((name, value / 2 if name in NETWORK_LATENCY else value) for name, value in cluster.constant_values)
    return replace(job, cluster=replace(cluster, constant_values=halved))


def _host(job: Job) -> Job:
    framework, sent = paced(job.framework, 0.5), job.framework.communication
    sent = replace(sent, p2p_overhead=sent.p2p_overhead / 2, p2p_announcement=sent.p2p_announcement / 2)
    return replace(job, framework=replace(framework, communication=sent))


FASTER_PARTS: Mapping[str, FasterPart] = {
    "arithmetic": FasterPart("GPU arithmetic", _arithmetic, KERNELS),
    "memory": FasterPart("GPU memory bandwidth", _memory, (*KERNELS, "optimizer")),
    "local": FasterPart("links inside nodes", _local, ("tp",)),
    "storage": FasterPart("memory of hosts, drives", _storage, ("offload",)),
    "network": FasterPart("network bandwidth", _network, ("pp", "dp")),
    "latency": FasterPart("network latency", _latency, ("pp", "dp", "other")),
    "host": FasterPart("host", _host, ("host",)),
}
