"""The slowest GPUs of a job at another pace, or one GPU slower where all are alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainsim.contracts.job import Job, Slow
from trainsim.program.jitter import slow_gpus
from trainsim.units import format_number_of


@dataclass(frozen=True, slots=True)
class Paced:
    """A change of a job: kernels of ``ranks`` take ``factor`` times as long as they do."""

    ranks: tuple[int, ...]
    factor: float

    def __call__(self, job: Job) -> Job:
        return replace(job, what_if=(*job.what_if, Slow(factor=self.factor, ranks=self.ranks)))


def straggler(job: Job, usual: int, factor: float) -> tuple[str, Paced]:
    """In words, and as a change: the slowest ranks *factor* times as fast; where all are alike, the rank *usual* takes
    so many times as long.

    >>> from trainsim.scenario.scenario import Scenario
    >>> plain = Scenario.load("quickstart")
    >>> straggler(plain.resolve(), 4, 1.1)
    ('one GPU (rank 4) 10 % slower', Paced(ranks=(4,), factor=1.1))
    >>> straggler(plain.replace({"what_if": [{"slow": {"rank": 2, "factor": 1.3}}]}).resolve(), 4, 1.1)[0]
    'the slowest GPU (rank 2)'
    """
    paces = slow_gpus(job)
    for what in job.what_if:
        if isinstance(what, Slow):
            paces[list(what.ranks)] *= what.factor
    slowest = np.flatnonzero(paces >= paces.max() * (1 - 1e-12))
    if len(slowest) == len(paces):
        return f"one GPU (rank {usual}) {factor - 1:.0%} slower".replace("%", " %"), Paced((usual,), factor)
    ranks = tuple(int(rank) for rank in slowest)
    several = format_number_of(len(ranks), "slowest GPU")
    return f"the slowest GPU (rank {ranks[0]})" if len(ranks) == 1 else f"the {several}", Paced(ranks, 1 / factor)
