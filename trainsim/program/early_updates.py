"""
Updates in the backward pass: each parameter is updated as soon as its gradient is there, which is then dropped.

PyTorch runs such an update from a hook (``register_post_accumulate_grad_hook``), parameter by parameter, so that no
more than one gradient of a layer is there at once. Where parameters are sharded, the hook runs behind the reduction of
their unit, on the stream of the reductions (``foreach_reduce`` of torch/distributed/fsdp/_fully_shard), beside the
passes. The norm of all gradients is never known, so nothing is clipped by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainsim.contracts.groups import Queue
from trainsim.contracts.instructions import Hold, Kernel
from trainsim.contracts.job import Job
from trainsim.program.block_costs import Blocks
from trainsim.program.states import owned, shapes, state_length
from trainsim.sharding.flights import UPDATE, Flight, FlightStep, PassFlights, PassMoment
from trainsim.sharding.parameter_groups import Held, ParameterGroup, shared
from trainsim.sharding.plan import ShardingPlan


def moved_bytes(job: Job, held: Sequence[Held], stays: float = 1.0) -> float:
    """Memory traffic of the update of the groups *held*, of which the part *stays* is on the GPU."""
    optimizer, per_parameter = job.training.optimizer, job.framework.kernels.optimizer_bytes_per_parameter
    return sum(
        per_parameter
        * optimizer.traffic(shapes(job, group), like=state_length(job))
        * group.total
        / shards.optimizer
        * stays
        for group, shards in held
    )


def copied_bytes(job: Job, held: Sequence[Held]) -> float:
    """Traffic of copies of the gradients that a rank has at the end of a step, bytes."""
    of_gradients = shared((group.total, shards.gradients) for group, shards in held)
    return job.framework.kernels.gradient_copy_bytes_per_parameter * of_gradients


def early_update(blocks: Blocks, held: Sequence[Held], share: float) -> Kernel:
    """The update of a *share* of the trained parameters *held* on a rank."""
    moved = moved_bytes(blocks.job, held) + copied_bytes(blocks.job, held)
    return blocks.traffic("optimizer", share * moved, "optimizer")


def with_early_updates(job: Job, plan: ShardingPlan, groups: Sequence[ParameterGroup]) -> ShardingPlan:
    """*plan* whose backwards update what they have reduced, and in which nobody agrees on a norm."""
    held = [one for one in plan.held(groups) if one.group.trained]
    flights = {
        role: _updating(job, beside, held) if role.work == "B" else beside for role, beside in plan.flights.items()
    }
    return replace(plan, flights=flights, norms=())


def _updating(job: Job, beside: PassFlights, held: Sequence[Held]) -> PassFlights:
    """A backward's flights with an update behind each last reduction, or behind each part where nobody reduces."""
    reductions = _last_reductions(beside)
    sent = {f.name: f.steps[-1].nbytes for f in reductions}
    parts = {} if sent else {PassMoment(part, after=True): n for part, n in enumerate(_parts(held)) if n}
    total = sum(sent.values()) + sum(parts.values())
    moved = moved_bytes(job, held) + copied_bytes(job, held)
    gradients = job.sum_bytes * owned(held)

    def update(at: PassMoment | str, share: float, chain: Queue) -> Flight:
        return Flight(
            f"update {at if isinstance(at, str) else at.part}",
            (FlightStep(UPDATE, share * moved),),
            at,
            takes=(Hold("gradients", share * gradients),),
            gives=(Hold("gradients", -share * gradients),),
            chain=chain,
        )

    flights: list[Flight] = []
    for flight in beside.flights:
        flights.append(flight)
        if flight.name in sent:
            at, chain = (flight.name, Queue.STEP) if flight.beside else (flight.issued, Queue.COMPUTE)
            flights.append(update(at, sent[flight.name] / total, chain)._replace(name=f"update after {flight.name}"))
    flights += [update(at, n / total, Queue.COMPUTE) for at, n in parts.items()]
    return beside._replace(flights=tuple(flights))


def _last_reductions(beside: PassFlights) -> list[Flight]:
    """The flights behind which gradients are reduced: no other one of the same parameters follows."""
    some = [f for f in beside.flights if not f.gathers and f.steps]
    followed = {f.issued for f in some if isinstance(f.issued, str)}
    behind = {f.issued: f.name for f in some if not f.beside}  # on the compute chain the last of a moment
    return [f for f in some if f.name not in followed and behind.get(f.issued, f.name) == f.name]


def _parts(held: Sequence[Held]) -> list[int]:
    """Trained parameters by the part of a pass that makes their gradients."""
    return [sum(column) for column in zip(*(one.group.chunks[0].parts for one in held), strict=True)]
