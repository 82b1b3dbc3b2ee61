"""Each part of a machine faster by a factor, as a job of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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


class MachinePart(NamedTuple):
    """Something that could be faster: in words, how, and the kinds of spans on the critical path that it carries."""

    title: str
    change: Callable[[Job, float], Job]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Faster:
    """A change of a job: the ``part`` called so does ``factor`` times as much in a second, or takes as much less time.

    >>> from trainsim.scenario.scenario import Scenario
    >>> job = Scenario.load("quickstart").resolve()
    >>> Faster("memory", 1.5)(job).cluster.gpu.memory_bandwidth / job.cluster.gpu.memory_bandwidth
    1.5
    """

    part: str
    factor: float = 2.0

    def __call__(self, job: Job) -> Job:
        return PARTS[self.part].change(job, self.factor)


def parts_of(job: Job) -> tuple[str, ...]:
    """Those of ``PARTS`` that *job* has."""
    missing = {*(BETWEEN_NODES if job.cluster.nodes == 1 else ()), *(() if job.uses_host else ("storage",))}
    return tuple(name for name in PARTS if name not in missing)


def _gpu(job: Job, gpu: GPU) -> Job:
    return replace(job, cluster=replace(job.cluster, gpu=gpu))


def _arithmetic(job: Job, factor: float) -> Job:
    gpu = job.cluster.gpu
    return _gpu(job, replace(gpu, flops={precision: factor * speed for precision, speed in gpu.flops.items()}))


def _memory(job: Job, factor: float) -> Job:
    gpu = job.cluster.gpu
    return _gpu(job, replace(gpu, memory_bandwidth=factor * gpu.memory_bandwidth))


def _local(job: Job, factor: float) -> Job:
    """Every cable inside the nodes."""
    node = job.cluster.node
    cables = tuple(replace(cable, bandwidth=factor * cable.bandwidth) for cable in node.cables)
    return replace(job, cluster=replace(job.cluster, node=replace(node, cables=cables)))


def _storage(job: Job, factor: float) -> Job:
    """Memory of the hosts, and drives."""
    node = job.cluster.node
    host = node.host and replace(node.host, bandwidth=factor * node.host.bandwidth)
    drive = node.drive and replace(node.drive, read=factor * node.drive.read, write=factor * node.drive.write)
    return replace(job, cluster=replace(job.cluster, node=replace(node, host=host, drive=drive)))


def _network(job: Job, factor: float) -> Job:
    """NICs, and with them all tiers above."""
    fabric = job.cluster.fabric
    return replace(
        job, cluster=replace(job.cluster, fabric=replace(fabric, nic_bandwidth=factor * fabric.nic_bandwidth))
    )


def _latency(job: Job, factor: float) -> Job:
    cluster: Cluster = job.cluster
    shorter = tuple(
        (name, value / factor if name in NETWORK_LATENCY else value) for name, value in cluster.constant_values
    )
    return replace(job, cluster=replace(cluster, constant_values=shorter))


def _host(job: Job, factor: float) -> Job:
    framework, sent = paced(job.framework, 1 / factor), job.framework.communication
    sent = replace(sent, p2p_overhead=sent.p2p_overhead / factor, p2p_announcement=sent.p2p_announcement / factor)
    return replace(job, framework=replace(framework, communication=sent))


PARTS: Mapping[str, MachinePart] = {
    "arithmetic": MachinePart("GPU arithmetic", _arithmetic, KERNELS),
    "memory": MachinePart("GPU memory bandwidth", _memory, (*KERNELS, "optimizer")),
    "local": MachinePart("links inside nodes", _local, ("tp",)),
    "storage": MachinePart("memory of hosts, drives", _storage, ("offload",)),
    "network": MachinePart("network bandwidth", _network, ("pp", "dp")),
    "latency": MachinePart("network latency", _latency, ("pp", "dp", "other")),
    "host": MachinePart("host", _host, ("host",)),
}
