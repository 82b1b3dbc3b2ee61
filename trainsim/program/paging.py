"""
States of the optimizer in unified memory: what has no room on the GPU is on the host between updates.

CUDA moves pages to the host when passes need the room, and bitsandbytes fetches them again ahead of an update
(bitsandbytes/optim/optimizer.py, prefetch_state). Here both ways stand around the update, with nothing under them,
which is the most that they take.
"""

from __future__ import annotations

from trainsim.contracts.groups import ALONE
from trainsim.contracts.instructions import Meet
from trainsim.program.rank import RankPlan
from trainsim.program.states import shapes, state_length
from trainsim.sharding.parameter_groups import shared


def pageable(rank_plan: RankPlan) -> float:
    """Bytes of states of a rank that may lie on the host."""
    job = rank_plan.parts.job
    optimizer, held = job.training.optimizer, [one for one in rank_plan.held if one.group.trained]
    if not optimizer.paged:
        return 0.0
    of_groups = (
        (optimizer.state_bytes(some, like=state_length(job)) * group.total / max(1, some.total), shards.optimizer)
        for group, shards in held
        for some in (shapes(job, group),)
    )
    return shared(of_groups)


def paged_out(rank_plan: RankPlan) -> float:
    """Bytes of them that are on the host between updates."""
    return rank_plan.parts.job.paged_out.get(rank_plan.rank, 0.0)


def copies(rank_plan: RankPlan, operation: str) -> list[Meet]:
    """The way of these states to the GPU (``host_in``) or from it (``host_out``)."""
    nbytes = paged_out(rank_plan)
    return [Meet("states", "offload", ALONE, operation, nbytes, stream="offload")] if nbytes else []
