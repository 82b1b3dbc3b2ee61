"""
Activations on the host between forward and backward: what is copied when, by which copies a pass is held up, and how
much of the host's memory it takes.

A chain of its own copies what a layer has saved to the host as soon as its forward is over, and brings it back while
the layer above it runs backward. A forward waits when too much is on its way out. The head keeps what it has. Source:
pytorch/torchtune, torchtune/training/_activation_offloading.py (OffloadActivations), which TRL and Axolotl took over.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.groups import ALONE, Queue
from trainsim.contracts.instructions import Hold
from trainsim.program.alone import late
from trainsim.program.parts import Parts
from trainsim.program.rank import RankPlan
from trainsim.program.stages import Stage, recompute_modes
from trainsim.schedules import Work
from trainsim.sharding.flights import Flight, FlightStep, PassFlights, PassMoment

CHAIN = Queue.ACTIVATIONS
STASHED = 5
"""Tensors that may be on their way to the host before a forward waits (max_fwd_stash_size): of a recomputed layer only
its input is kept, so these are as many layers; other layers save more than that each."""


def moves(parts: Parts) -> bool:
    """Whether activations of this job go to the host."""
    return parts.job.training.activation_offload != "none"


def beside(parts: Parts, stage: Stage, work: str) -> PassFlights:
    """The copies under a pass through *stage*: out under a forward, in under a backward or its first half."""
    if not moves(parts) or work not in ("F", "B", "I"):
        return PassFlights()
    return PassFlights(tuple(_out(parts, stage) if work == "F" else _in(parts, stage)))


def _saved(parts: Parts, stage: Stage) -> Iterator[tuple[int, str, float]]:
    """(Part of a pass, name, bytes that it saves) of the layers of a stage that save anything, in forward order."""
    for place, block in enumerate(parts.layer_blocks(stage)):
        if block.saved:
            yield stage.layers - place, f"activations {stage.index}.{place}", block.saved


def _out(parts: Parts, stage: Stage) -> Iterator[Flight]:
    modes = recompute_modes(parts.job, parts.stages)
    for part, name, nbytes in _saved(parts, stage):
        ahead = STASHED if modes[stage.first + stage.layers - part] == "full" else 1
        yield Flight(
            f"store {name}",
            (FlightStep("host_out", nbytes, ALONE),),
            issued=PassMoment(part, after=True),
            needed=PassMoment(part - ahead, after=True) if part > ahead else None,
            gives=(Hold("activations", -nbytes),),
            chain=CHAIN,
        )


def _in(parts: Parts, stage: Stage) -> Iterator[Flight]:
    for part, name, nbytes in reversed(list(_saved(parts, stage))):
        yield Flight(
            f"fetch {name}",
            (FlightStep("host_in", nbytes, ALONE),),
            issued=PassMoment(part - 1),
            needed=PassMoment(part),
            takes=(Hold("activations", nbytes),),
            chain=CHAIN,
            gathers=True,
        )


def late_seconds(parts: Parts, stage: Stage) -> float:
    """Seconds by which a forward and a backward through *stage* outlast their kernels, in closed form."""
    return late(parts, stage, beside(parts, stage, "F"), beside(parts, stage, "B")) if moves(parts) else 0.0


def host_bytes(rank_plan: RankPlan) -> float:
    """The most that a rank has on its host at once: of all microbatches between their forward and their backward."""
    if not moves(rank_plan.parts):
        return 0.0
    each = [sum(nbytes for *_, nbytes in _saved(rank_plan.parts, stage)) for stage in rank_plan.stages]
    most = now = 0.0
    for slot in rank_plan.slots:
        if slot.work is Work.F:
            now += each[slot.chunk]
            most = max(most, now)
        elif slot.work in (Work.B, Work.I):
            now -= each[slot.chunk]
    return most
