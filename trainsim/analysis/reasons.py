"""What may explain that a simulation differs from the closed form: facts about the job and the run, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainsim.contracts.job import Delay, Job, Skip, Slow
from trainsim.units import format_time

MATTERS = 0.1
"""Part of a difference from which on a cause is named."""
MOSTLY = 0.8
"""Part from which on no other cause is."""


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
            yield f"kernels take {format_time(self.contention)} longer beside collectives than alone"
        if self.slow or self.contention > MOSTLY * difference > 0:
            return
        if self.uneven:
            yield "stages that are not even"
        if self.messages:
            yield "messages that are hidden or not"

    def of_the_end(self) -> Iterator[str]:
        """Why reductions and update differ."""
        yield from self.slow
        if self.reductions:
            yield "links that groups share"
        if self.hidden:
            yield "how much of the reductions the passes hide"
        if self.messages:
            yield "waiting for the last stage"


def slow_things(job: Job) -> tuple[str, ...]:
    """What the job's ``what_if`` slows down, in words."""
    return tuple(_words(job, what) for what in job.what_if if not isinstance(what, Skip))


def _words(job: Job, what: Slow | Delay) -> str:
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
