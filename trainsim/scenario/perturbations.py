"""What goes wrong in a scenario's ``what_if``, with the ranks and links that are meant."""

from __future__ import annotations

import re

import numpy as np

from trainsim.contracts.job import Delay, Skip, Slow
from trainsim.errors import NotBuilt, ScenarioError
from trainsim.hardware.cluster import Cluster
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.schema import SlowSpec

BESIDE = ("delayed_update", "pipeline_read", "pipeline_write")
"""Kinds of offload whose chains count on an update in every step."""


def perturbations(context: Context, cluster: Cluster, *, flushes: bool) -> tuple[Slow | Delay | Skip, ...]:
    """What goes wrong in ``what_if``, with the ranks and links that are meant; *flushes*: whether steps have an end."""
    out: list[Slow | Delay | Skip] = []
    for k, entry in enumerate(context.spec.what_if):
        if entry.slow:
            out.append(_slow(context, f"what_if.{k}.slow", entry.slow, cluster))
        if entry.delay:
            _inside(context, f"what_if.{k}.delay.rank", entry.delay.rank, cluster.ranks, "rank")
            out.append(Delay(rank=entry.delay.rank, at=entry.delay.at, seconds=entry.delay.seconds))
        if entry.skip and not flushes:
            message = "this schedule updates weights while others are in flight; one that flushes can skip a step"
            context.require(Fault(f"what_if.{k}.skip", message))
        if entry.skip and any(getattr(context.spec.sharding.offload, key) for key in BESIDE):
            message = f"not simulated yet with {', '.join(BESIDE)} of offload; without them it is"
            context.require(Fault(f"what_if.{k}.skip", message), NotBuilt)
        if entry.skip:
            _inside(context, f"what_if.{k}.skip.step", entry.skip.step, context.spec.simulation.steps, "step")
            out.append(Skip(step=entry.skip.step))
    return tuple(out)


def _slow(context: Context, key: str, slow: SlowSpec, cluster: Cluster) -> Slow:
    factor = float(slow.factor)
    if slow.node is not None:
        _inside(context, f"{key}.node", slow.node, cluster.nodes, "node")
        ranks = np.flatnonzero(cluster.node_of(np.arange(cluster.ranks)) == slow.node)
        return Slow(factor=factor, ranks=tuple(map(int, ranks)))
    number = slow.rank if slow.rank is not None else slow.gpu
    if isinstance(slow.gpu, str):
        number = _gpu(context, f"{key}.gpu", slow.gpu, cluster)
    if isinstance(number, int):
        _inside(context, f"{key}.{'gpu' if slow.rank is None else 'rank'}", number, cluster.ranks, "rank")
        return Slow(factor=factor, ranks=(number,))
    name = (slow.link if slow.nic is None else slow.nic) or ""
    with context.at(f"{key}.{'link' if slow.nic is None else 'nic'}"):
        cluster.find_links(name)
    return Slow(factor=factor, links=(name,))


def _gpu(context: Context, key: str, name: str, cluster: Cluster) -> int:
    """The rank of the GPU called *name*."""
    per_node = cluster.ranks // cluster.nodes
    match = re.fullmatch(r"node(\d{1,9})\.gpu(\d{1,9})", name)
    if not match:
        raise ScenarioError(context.message(key, f"'{name}' is no GPU; a GPU is a rank number, or node0.gpu0"))
    node, gpu = int(match[1]), int(match[2])
    _inside(context, key, node, cluster.nodes, "node")
    _inside(context, key, gpu, per_node, "GPU", " of a node")
    return node * per_node + gpu


def _inside(context: Context, key: str, number: int, size: int, what: str, where: str = "") -> None:
    if number >= size:
        have = f"there are {size} {what}s{where}, 0 to {size - 1}" if size > 1 else f"there is one {what}{where}, 0"
        context.require(Fault(key, have), ScenarioError)
