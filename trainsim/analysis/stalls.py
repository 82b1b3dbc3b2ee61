"""When a stage is idle between its passes, and for want of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from trainsim.analysis.kinds import BACKWARD
from trainsim.analysis.lanes import Floats, Ints, Lane, Lanes
from trainsim.analysis.passes import Passes

WARMUP, STEADY, COOLDOWN = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Idle seconds of the mean rank of one stage, twice over: by phase, and by what it waits for. Both sum to
    ``idle_s``; ``window_s`` is ``busy_s`` and ``idle_s``.

    Phases: *warm-up* until the first backward pass of the stage begins, *cool-down* after its last forward pass,
    *steady* between. Reasons: another stage has not computed an ``activations_s`` or ``gradients_s`` yet, the message
    is under way (``network_s``: also that of a sender that waits for its own), a peer of a collective or of a blocking
    message is late (``peers_s``), or this stage has ``finished_s`` and others have not. ``late_s``, no part of the
    bubble, is what it waits for late peers inside the collectives of its passes.
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


def stalls(lanes: Lanes, every: Sequence[Passes], window: Floats) -> tuple[Stall, ...]:
    """The idle time of each stage; *every* has the passes of each class, *window* its seconds."""
    table = np.array([_row(lanes, lane, *of) for lane, *of in zip(lanes.compute, every, window.tolist(), strict=True)])
    out = []
    for stage in range(lanes.stages):
        which = lanes.stage == stage
        mean = (table[which] * lanes.count[which, None]).sum(0) / lanes.count[which].sum()
        out.append(Stall(stage=stage, **dict(zip(NUMBERS, mean.tolist(), strict=True))))
    return tuple(out)


def _row(lanes: Lanes, lane: Lane, mine: Passes, window: float) -> list[float]:
    """The numbers of one class, in the order of NUMBERS."""
    rest = window - mine.last
    gap = np.where(mine.beside, 0.0, mine.gap - mine.aside)
    phase = _phases(lanes, lane, mine)
    by_phase = np.bincount(phase, gap + mine.waited, 3) if len(gap) else np.zeros(3)
    network, activations, gradients, peers = _reasons(lanes, lane, mine, gap)
    late = (lane.start - lane.posted)[mine.rows].sum() + lane.held[mine.rows].sum()
    idle = float(gap.sum() + mine.waited.sum()) + rest
    return [
        window, mine.busy, idle,
        float(by_phase[WARMUP]), float(by_phase[STEADY]), float(by_phase[COOLDOWN]) + rest,
        activations, gradients, network + float(mine.waited.sum()), peers, rest, float(late),
    ]  # fmt: skip


def _phases(lanes: Lanes, lane: Lane, mine: Passes) -> Ints:
    """The phase of the gap before each row."""
    tasks = lanes.trace.tasks[lane.number]
    works = [tasks[k].template.work for k in lane.task[mine.rows].tolist()]
    backward = np.array([work in BACKWARD for work in works], bool)
    forward = np.flatnonzero(np.array([work == "F" for work in works], bool))
    at = np.arange(len(works))
    first = int(np.argmax(backward)) if backward.any() else len(works)
    last = int(forward[-1]) if len(forward) else -1
    return np.where(at <= first, WARMUP, np.where(at > last, COOLDOWN, STEADY))


def _reasons(lanes: Lanes, lane: Lane, mine: Passes, gap: Floats) -> tuple[float, float, float, float]:
    """Seconds in which a message was under way, and in which activations, gradients and peers were late."""
    known = np.flatnonzero((mine.cause >= 0) & (gap > 0))
    cause, gap, total = mine.cause[known], gap[known], float(gap.sum())
    chain = lanes.chain_of[cause]
    since = lane.posted[mine.rows[known]] - gap
    under_way = np.clip(lanes.row_end[cause] - np.maximum(lanes.row_start[cause], since), 0.0, gap)
    carries = [one.messages.carries if one.messages else "" for one in lanes.all]
    owners = np.array([one.owner for one in lanes.all])
    messages = np.array([one.is_messages for one in lanes.all])[chain]
    own = messages & (owners[chain] == lane.owner)
    under_way[own] = gap[own]
    late = np.where(messages, gap - under_way, 0.0)
    forward, backward = (np.array([what == way for what in carries])[chain] for way in ("forward", "backward"))
    network = float(under_way[messages].sum())
    activations, gradients = float(late[forward].sum()), float(late[backward].sum())
    return network, activations, gradients, total - network - activations - gradients
