"""
Where the experts of a job are, and how much of the tokens comes to each rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from trainsim.contracts.groups import EXPERTS
from trainsim.contracts.job import Job, Routing
from trainsim.models.shapes import ExpertShape
from trainsim.program.network import Network

DISPATCHED: Mapping[str | None, float] = {"fp8": 1 + 4 / 128}
"""Bytes per element on the way to experts: with a scale in fp32 per 128 of them (DeepSeek-V3, arXiv 2412.19437)."""


def expert_shape(job: Job, network: Network) -> ExpertShape:
    """The experts of *job* as the rank sees them that gets most tokens."""
    degrees, busiest = job.parallel, max(loads(job))
    return ExpertShape(
        ep=degrees.ep,
        etp=degrees.etp,
        near=near(network),
        dispatcher=job.training.routing.dispatcher,
        load=busiest,
        busiest=busiest,
        shared_overlap=job.training.routing.shared_overlap,
        dispatched_bytes=DISPATCHED.get(job.training.routing.dispatch_precision),
        delay_wgrad=job.training.delay_wgrad,
    )


def with_load(shape: ExpertShape, load: float) -> ExpertShape:
    """The same for a rank that gets *load* times the mean."""
    return replace(shape, load=load)


def near(network: Network) -> int:
    """Ranks of a group that exchanges tokens which share an NVLink domain; 1 where they are spread unevenly."""
    members = network.gpu_of(network.members(EXPERTS)[:1])
    domains = np.unique(network.job.cluster.domain_of(members), return_counts=True)[1]
    return int(domains[0]) if len(set(domains.tolist())) == 1 else 1


def loads(job: Job) -> tuple[float, ...]:
    """Tokens that come to each rank along ``ep``, over the mean: those of its experts."""
    model, ep = job.model, job.parallel.ep
    experts = {kind.moe.experts for kind in model.kinds if kind.moe is not None}
    if len(experts) != 1:
        return (1.0,) * ep
    each = kept(job.training.routing, experts.pop())
    local = len(each) // ep
    return tuple(sum(each[k * local : (k + 1) * local]) / local for k in range(ep))


def kept(routing: Routing, experts: int) -> Sequence[float]:
    """Tokens that each expert works on, over the mean: what is above its capacity is dropped, or what is below it
    filled up.

    >>> kept(Routing(loads=(3.0, 0.5, 0.25, 0.25), capacity_factor=1.25), 4)
    [1.25, 0.5, 0.25, 0.25]
    """
    each = list(routing.loads) or [1.0] * experts
    if routing.capacity_factor is None:
        return each
    if routing.pad_to_capacity:
        return [routing.capacity_factor] * experts
    return [min(load, routing.capacity_factor) for load in each]
