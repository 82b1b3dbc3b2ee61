"""What goes wrong in a scenario's ``what_if``, with the ranks and links that are meant."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from trainsim.contracts.allocation import Allocation
from trainsim.contracts.job import Delay, Flap, Skip, Slow
from trainsim.errors import NotBuilt, ScenarioError
from trainsim.hardware.cluster import Cluster
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.placement import placed_nodes
from trainsim.scenario.what_if_section import FlapSpec, SlowSpec

Ints = npt.NDArray[np.int64]
BESIDE = ("delayed_update", "pipeline_read", "pipeline_write")
"""Kinds of offload whose chains count on an update in every step."""


def perturbations(
    context: Context, cluster: Cluster, allocation: Allocation, *, flushes: bool
) -> tuple[Slow | Delay | Skip | Flap, ...]:
    """What goes wrong in ``what_if``, with the ranks and links that are meant; *flushes*: whether steps have an end."""
    out: list[Slow | Delay | Skip | Flap] = []
    ranks = allocation.ranks(cluster.ranks)
    for k, entry in enumerate(context.spec.what_if):
        if entry.slow:
            out.append(_slow(context, f"what_if.{k}.slow", entry.slow, cluster, allocation))
        if entry.flap:
            out.append(_flap(context, f"what_if.{k}.flap", entry.flap, cluster))
        if entry.delay:
            _inside(context, f"what_if.{k}.delay.rank", entry.delay.rank, ranks, "rank")
            out.append(Delay(rank=entry.delay.rank, at=entry.delay.at, seconds=entry.delay.seconds))
        if entry.skip and not flushes:
            message = "this schedule updates weights while microbatches are in flight; one with a flush can skip"
            context.require(Fault(f"what_if.{k}.skip", message))
        if entry.skip and any(getattr(context.spec.sharding.offload, key) for key in BESIDE):
            message = f"not simulated yet with the offload options {', '.join(BESIDE)}; leave them out"
            context.require(Fault(f"what_if.{k}.skip", message), NotBuilt)
        if entry.skip:
            _inside(context, f"what_if.{k}.skip.step", entry.skip.step, context.spec.simulation.steps, "step")
            out.append(Skip(step=entry.skip.step))
    return tuple(out)


def _slow(context: Context, key: str, slow: SlowSpec, cluster: Cluster, allocation: Allocation) -> Slow:
    factor = float(slow.factor)
    if slow.node is not None:
        _inside(context, f"{key}.node", slow.node, cluster.nodes, "node")
        first = slow.node * cluster.gpus_per_node
        gpus = np.arange(first, first + cluster.gpus_per_node)
        ranks = _ranks(context, f"{key}.node", gpus, f"node {slow.node}", cluster=cluster, allocation=allocation)
        return Slow(factor=factor, ranks=ranks)
    number = slow.rank if slow.rank is not None else slow.gpu
    if isinstance(slow.gpu, str):
        gpu = np.array([_gpu(context, f"{key}.gpu", slow.gpu, cluster)])
        (number,) = _ranks(context, f"{key}.gpu", gpu, slow.gpu, cluster=cluster, allocation=allocation)
    if isinstance(number, int):
        named = f"{key}.{'gpu' if slow.rank is None else 'rank'}"
        _inside(context, named, number, allocation.ranks(cluster.ranks), "rank")
        return Slow(factor=factor, ranks=(number,))
    return Slow(factor=factor, links=(_links(context, key, slow, cluster),))


def _flap(context: Context, key: str, flap: FlapSpec, cluster: Cluster) -> Flap:
    name = _links(context, key, flap, cluster)
    return Flap(links=(name,), since=flap.since, until=flap.until, factor=flap.factor)


def _links(context: Context, key: str, spec: SlowSpec | FlapSpec, cluster: Cluster) -> str:
    """The name of the links that are meant, which are there."""
    name = (spec.link if spec.nic is None else spec.nic) or ""
    with context.at(f"{key}.{'link' if spec.nic is None else 'nic'}"):
        cluster.find_links(name)
    return name


def _gpu(context: Context, key: str, name: str, cluster: Cluster) -> int:
    """The number in the cluster of the GPU called *name*."""
    per_node = cluster.ranks // cluster.nodes
    match = re.fullmatch(r"node(\d{1,9})\.gpu(\d{1,9})", name)
    if not match:
        raise ScenarioError(context.message(key, f"'{name}' is not a GPU; a GPU is a rank number, or node0.gpu0"))
    node, gpu = int(match[1]), int(match[2])
    _inside(context, key, node, cluster.nodes, "node")
    _inside(context, key, gpu, per_node, "GPU", " of a node")
    return node * per_node + gpu


def _ranks(
    context: Context, key: str, gpus: Ints, what: str, *, cluster: Cluster, allocation: Allocation
) -> tuple[int, ...]:
    """The ranks on some *gpus*, which are called *what*; refused where the job has none there."""
    ranks = tuple(rank for rank in allocation.rank_of(gpus).tolist() if rank >= 0)
    if not ranks:
        nodes = sorted(placed_nodes(allocation, cluster))
        context.require(Fault(key, f"the job does not run on {what}; it has the nodes {nodes}"), ScenarioError)
    return ranks


def _inside(context: Context, key: str, number: int, size: int, what: str, where: str = "") -> None:
    if number >= size:
        have = f"there are {size} {what}s{where}, 0 to {size - 1}" if size > 1 else f"there is one {what}{where}, 0"
        context.require(Fault(key, have), ScenarioError)
