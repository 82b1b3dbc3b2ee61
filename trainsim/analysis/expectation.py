"""The closed form beside the simulation: where the two differ, and facts of the job that may be the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.analysis.critical import CriticalPath
from trainsim.analysis.kinds import COLUMN
from trainsim.analysis.lanes import Lane, Lanes
from trainsim.contracts.job import Delay, Flap, Job, Skip, Slow
from trainsim.units import format_time

PASSES = "passes and messages"

ROLLOUT = "rollout"

COUNTERPARTS = {
    PASSES: ("steady", "fill and drain", "messages"),
    "reductions and update": ("dp", "update"),
}
"""Phases of the step, and the parts of the closed form that stand for them."""

ON_THE_PATH = {
    PASSES: ("passes", "messages"),
    "reductions and update": ("dp", "update"),
}
"""The same phases on the critical path."""

AGREES = 5e-4
"""A difference below this part of the step needs no explanation."""
MATTERS = 0.1
"""Part of a difference from which on a cause is named."""
MOSTLY = 0.8
"""Part from which on no other cause is."""
NAMED = 0.2
"""A phase that differs by less than this part of the most different one is not named beside it."""
KERNELS = ("forward", "backward", "recompute", "optimizer")
"""Kinds of spans that take the GPU's SMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the closed form does not know. ``slow``: what_if in words; ``contention``: seconds by which the kernels of
    the mean rank are longer beside collectives; whether stages differ, there are messages between them, gradients are
    reduced between replicas, and passes hide some of that."""

    slow: tuple[str, ...] = ()
    contention: float = 0.0
    uneven: bool = False
    messages: bool = False
    reductions: bool = False
    hidden: bool = False

    def of_passes(self, difference: float) -> Iterator[str]:
        """Why the passes take *difference* seconds more (or less) than in the closed form."""
        yield from self.slow
        if self.contention > MATTERS * abs(difference) and difference > 0:
            yield f"kernels take {format_time(self.contention)} longer alongside collectives than alone"
        if self.slow or self.contention > MOSTLY * difference > 0:
            return
        if self.uneven:
            yield "imbalanced stages"
        if self.messages:
            yield "messages that do or do not overlap"

    def of_the_end(self) -> Iterator[str]:
        """Why reductions and update differ."""
        yield from self.slow
        if self.reductions:
            yield "links shared by several groups"
        if self.hidden:
            yield "how much of the reductions overlaps with passes"
        if self.messages:
            yield "waiting for the last stage"


class Phase(NamedTuple):
    """A phase of the step in both views, seconds; the simulated one is what lies on the critical path."""

    name: str
    closed_form: float
    simulated: float

    @property
    def difference(self) -> float:
        return self.simulated - self.closed_form


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The step in closed form (``seconds``) against the simulated one; the phases sum to the two exactly."""

    seconds: float
    simulated: float
    phases: tuple[Phase, ...]
    facts: Facts

    @property
    def difference(self) -> float:
        """Simulated over closed form, minus one."""
        return difference(self.simulated, self.seconds)

    @property
    def explanation(self) -> str:
        """One line: the part that differs most, what offsets it, and what may be the reason in this job."""
        if not self.phases:
            return "the closed form has no breakdown"
        if abs(self.difference) < AGREES:
            return "the two agree"
        most = max(self.phases, key=lambda phase: abs(phase.difference))
        reasons = self.facts.of_passes(most.difference) if most.name == PASSES else self.facts.of_the_end()
        return ": ".join(filter(None, (self._where(most), "; ".join(reasons))))

    def _where(self, most: Phase) -> str:
        """The phases that differ, with their signs: where two of them cancel, neither alone says anything."""
        matter = [phase for phase in self.phases if abs(phase.difference) >= NAMED * abs(most.difference)]
        if len(matter) == 1:
            return f"most of it in {most.name} ({format_time(most.difference, signed=True)})"
        ranked = sorted(matter, key=lambda phase: -abs(phase.difference))
        return " and ".join(f"{format_time(phase.difference, signed=True)} in {phase.name}" for phase in ranked)


def difference(simulated: float, closed_form: float) -> float:
    """Simulated over closed form, minus one."""
    return simulated / closed_form - 1.0 if closed_form > 0 else 0.0


def expectation(
    seconds: float, parts: Mapping[str, float], path: CriticalPath, step: float, facts: Facts
) -> Expectation:
    """Pair the parts of the closed form with the phases of the critical path; *facts* may explain a difference."""
    pairs = COUNTERPARTS | ({ROLLOUT: (ROLLOUT,)} if ROLLOUT in parts else {})
    on_the_path = ON_THE_PATH | {ROLLOUT: (ROLLOUT,)}
    named = {part for some in pairs.values() for part in some}
    phases = [
        Phase(
            name,
            sum(parts.get(part, 0.0) for part in some),
            sum(path.phases.get(phase, 0.0) for phase in on_the_path[name]),
        )
        for name, some in pairs.items()
    ]
    phases += [Phase(part, value, 0.0) for part, value in parts.items() if part not in named]
    return Expectation(seconds=seconds, simulated=step, phases=tuple(phases), facts=facts)


def contention(lanes: Lanes) -> float:
    """Seconds per step of the mean rank by which its kernels are longer than alone: sum of (duration - alone)."""
    total = sum(_slowed(lanes, lane) * int(lanes.count[lane.owner]) for lane in lanes.compute)
    return total / lanes.ranks / lanes.steps


def _slowed(lanes: Lanes, lane: Lane) -> float:
    """Of one class; only literal rows and runs that always share are longer than alone."""
    sums, columns = lanes.run_sums, [COLUMN[kind] for kind in KERNELS]
    shared = lane.literal | (sums.alone != sums.seconds).any(1)[lane.run]
    alone = sums.alone[lane.run[shared]].sum(0)
    return float((lane.seconds[shared].sum(0) - alone)[columns].sum())


def slow_things(job: Job) -> tuple[str, ...]:
    """What the job's ``what_if`` slows down, in words."""
    return tuple(_words(job, what) for what in job.what_if if not isinstance(what, Skip))


def _words(job: Job, what: Slow | Delay | Flap) -> str:
    if isinstance(what, Flap):
        left = f"at {what.factor:.3g} of the bandwidth" if what.factor else "down"
        return f"{what.links[0]} {left} from {format_time(what.since)} to {format_time(what.until)}"
    if isinstance(what, Delay):
        return f"rank {what.rank} loses {format_time(what.seconds)} before its first {what.at}"
    if what.links:
        name = what.links[0] if len(what.links) == 1 else f"{len(what.links)} links"
        return f"{name} at {what.factor:.3g} of the bandwidth"
    change = f"{abs(what.factor - 1):.1%} {'longer' if what.factor >= 1 else 'less'}"
    return f"{whose(what.ranks, job.cluster.gpus_per_node)} kernels take {change}"


def whose(ranks: Sequence[int], per_node: int) -> str:
    """
    >>> whose([5], 4), whose(range(8, 12), 4), whose(range(8), 4), whose([1, 2, 3], 4)
    ("rank 5's", "node 2's", "2 nodes'", "3 ranks'")
    """
    nodes = sorted({rank // per_node for rank in ranks})
    if len(ranks) == len(nodes) * per_node:
        return f"node {nodes[0]}'s" if len(nodes) == 1 else f"{len(nodes)} nodes'"
    return f"rank {ranks[0]}'s" if len(ranks) == 1 else f"{len(ranks)} ranks'"
