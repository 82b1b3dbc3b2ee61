"""When a stage is idle between its passes, and for want of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from trainsim.analysis.idle import Occupancy
from trainsim.analysis.kinds import BACKWARD
from trainsim.analysis.lanes import Floats, Ints, Lane, Lanes

WARMUP, STEADY, COOLDOWN = range(3)


class StagePhases(NamedTuple):
    """Of each row of an ``Occupancy`` its phase, and when (seconds from the start of the passes) the steady state and
    the cool-down begin."""

    of_row: Ints
    steady_from: float
    cooldown_from: float


def phases(lanes: Lanes, lane: Lane, taken: Occupancy) -> StagePhases:
    """The phases of a rank, in the words of Megatron-LM's 1F1B: *warm-up* until its first backward pass begins,
    *cool-down* once its last forward pass has ended, *steady* between.

    Idle time counts to the phase of the pass that ends it: the wait for the first gradient is warm-up. A pipeline is in
    warm-up until all its ranks are out of theirs, and in cool-down as soon as one of them is. GPipe has no steady
    state.
    """
    works = lanes.works(lane)
    row_works = [works[k] for k in lane.task[taken.rows].tolist()]
    backward = np.flatnonzero(np.array([work in BACKWARD for work in row_works], bool))
    forward = np.flatnonzero(np.array([work == "F" for work in row_works], bool))
    first = int(backward[0]) if len(backward) else len(row_works)
    last = int(forward[-1]) if len(forward) else -1
    at = np.arange(len(row_works))
    return StagePhases(
        of_row=np.where(at <= first, WARMUP, np.where(at > last, COOLDOWN, STEADY)),
        steady_from=float(lane.posted[taken.rows[first]]) - taken.begin if len(backward) else taken.last,
        cooldown_from=float(lane.end[taken.rows[last]]) - taken.begin if len(forward) else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Idle seconds of the mean rank of one stage, twice over: by phase, and by what it waits for. Both sum to
    ``idle_s``; ``window_s`` is ``busy_s`` and ``idle_s``.

    Phases are those of ``phases``. Reasons: another stage has not computed an ``activations_s`` or ``gradients_s`` yet,
    the message is under way (``network_s``: also that of a sender that waits for its own), a peer of a collective or of
    a blocking message is late (``peers_s``), or this stage has ``finished_s`` and others have not. ``late_s``, no part
    of the bubble, is what it waits for late peers inside the collectives of its passes.
    """

    stage: int
    window_s: float
    busy_s: float
    idle_s: float
    warmup_s: float
    steady_s: float
    cooldown_s: float
    activations_s: float
    gradients_s: float
    network_s: float
    peers_s: float
    finished_s: float
    late_s: float

    @property
    def mostly(self) -> str:
        """What it waits for longest, in words; nothing if it never waits."""
        reason = max(REASONS, key=lambda name: float(getattr(self, name)))
        return REASONS[reason] if getattr(self, reason) > 0 else ""


NUMBERS = tuple(field.name for field in fields(Stall))[1:]
REASONS = {
    "activations_s": "late activations",
    "gradients_s": "late gradients",
    "network_s": "messages in flight",
    "peers_s": "late peers",
    "finished_s": "no work left",
}
"""Why a stage is idle, in words."""


def stalls(lanes: Lanes, every: Sequence[tuple[Occupancy, StagePhases]], window: Floats) -> tuple[Stall, ...]:
    """The idle time of each stage; *every* has what the passes of each class take and their phases, *window* its
    seconds."""
    each = zip(lanes.compute, every, window.tolist(), strict=True)
    table = np.array([_row(lanes, lane, taken, phase, seconds) for lane, (taken, phase), seconds in each])
    out = []
    for stage in range(lanes.stages):
        which = lanes.stage == stage
        mean = (table[which] * lanes.count[which, None]).sum(0) / lanes.count[which].sum()
        out.append(Stall(stage=stage, **dict(zip(NUMBERS, mean.tolist(), strict=True))))
    return tuple(out)


def _row(lanes: Lanes, lane: Lane, taken: Occupancy, phase: StagePhases, window: float) -> list[float]:
    """The numbers of one class, in the order of NUMBERS."""
    rest = window - taken.last
    gap = np.where(taken.beside, 0.0, taken.gap - taken.aside)
    by_phase = np.bincount(phase.of_row, gap + taken.waited, 3) if len(gap) else np.zeros(3)
    network, activations, gradients, peers = _reasons(lanes, lane, taken, gap)
    late = (lane.start - lane.posted)[taken.rows].sum() + lane.held[taken.rows].sum()
    idle = float(gap.sum() + taken.waited.sum()) + rest
    return [
        window, taken.busy, idle,
        float(by_phase[WARMUP]), float(by_phase[STEADY]), float(by_phase[COOLDOWN]) + rest,
        activations, gradients, network + float(taken.waited.sum()), peers, rest, float(late),
    ]  # fmt: skip


def _reasons(lanes: Lanes, lane: Lane, taken: Occupancy, gap: Floats) -> tuple[float, float, float, float]:
    """Seconds in which a message was under way, and in which activations, gradients and peers were late."""
    known = np.flatnonzero((taken.cause >= 0) & (gap > 0))
    cause, gap, total = taken.cause[known], gap[known], float(gap.sum())
    chain = lanes.chain_of[cause]
    since = lane.posted[taken.rows[known]] - gap
    under_way = np.clip(lanes.row_end[cause] - np.maximum(lanes.row_start[cause], since), 0.0, gap)
    carries = [source.messages.carries if source.messages else "" for source in lanes.all]
    messages = np.array([source.is_messages for source in lanes.all])[chain]
    own = messages & (lanes.chain_owner[chain] == lane.owner)
    under_way[own] = gap[own]
    late = np.where(messages, gap - under_way, 0.0)
    forward, backward = (np.array([what == way for what in carries])[chain] for way in ("forward", "backward"))
    network = float(under_way[messages].sum())
    activations, gradients = float(late[forward].sum()), float(late[backward].sum())
    return network, activations, gradients, total - network - activations - gradients
