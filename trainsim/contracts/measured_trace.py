"""A step that a machine has run: its trace, and what the files say besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from trainsim.contracts.trace import Trace


class MarkedStep(NamedTuple):
    """A step that the files mark: its number there, and its seconds on the host, as the mean over ranks; ``read``
    says whether it is in the trace."""

    number: int
    seconds: float
    read: bool


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeasuredTrace:
    """What files of measurements hold, as the trace that simulations give.

    Ranks of ``trace`` are numbered from 0; ``rank_numbers`` has the number that each has in its job. ``marked`` are the
    steps that the files mark, in order; ``part`` says in words which of them, or which part of the files, was read.
    ``shifts`` are the seconds by which the clock of each rank was put later, so that collectives end at once on all
    ranks that take part.
    """

    name: str
    trace: Trace
    files: tuple[str, ...]
    rank_numbers: tuple[int, ...]
    part: str
    gpu: str = ""
    marked: tuple[MarkedStep, ...] = ()
    shifts: tuple[float, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"<MeasuredTrace {self.name}: {len(self.rank_numbers)} ranks, {self.part}>"
