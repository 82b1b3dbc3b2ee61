"""A measured job replayed: with its own durations, with those of the ideal case, and with anything in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from trainsim.diagnosis.alike import AlikeSteps, alike_steps
from trainsim.diagnosis.operations import (
    COMPUTE_TYPES,
    JOINT_NAMES,
    NUMBER,
    TYPES,
    UPDATE,
    Bools,
    Floats,
    OperationTable,
    types_called,
)
from trainsim.diagnosis.structure import StepStructure

Durations = tuple[Floats, ...]
"""What every operation takes (operations x steps, seconds), for each structure of a job."""
Selection = Callable[[StepStructure], Bools]
"""Which operations of a step are meant."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JobReplay:
    """The steps of a table by structure; ``own`` are measured durations (of communications, transfer times), ``usual``
    the ideal one of each type. ``remarks`` say which steps are left out."""

    table: OperationTable
    parts: tuple[AlikeSteps, ...]
    own: Durations
    usual: Mapping[str, float]
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: OperationTable) -> JobReplay:
        """Raises InvalidData if no step can be replayed."""
        parts, remarks = alike_steps(table)
        own = tuple(_own(table, part) for part in parts)
        return cls(table=table, parts=parts, own=own, usual=_usual(parts, own), remarks=remarks)

    @cached_property
    def ideal(self) -> Durations:
        """Every operation takes what is usual for its type."""
        usual = np.array([self.usual.get(name, 0.0) for name in TYPES])
        return tuple(np.repeat(usual[part.structure.type][:, None], len(part.steps), axis=1) for part in self.parts)

    @cached_property
    def measured_steps(self) -> Floats:
        """How long each step took as measured, with launch delays; seconds, in the order of ``steps``."""
        return self._by_step([_last(part, self.table.end[part.rows]) for part in self.parts])

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The numbers of the steps that are replayed, ascending."""
        return tuple(sorted(step for part in self.parts for step in part.steps))

    @cached_property
    def step(self) -> float:
        """Seconds of the mean step with its own durations: what was measured less launch delays."""
        return self.mean(self.own)

    @cached_property
    def ideal_step(self) -> float:
        """Seconds of the mean step in the ideal case."""
        return self.mean(self.ideal)

    @property
    def slowdown(self) -> float:
        return self.step / self.ideal_step if self.ideal_step else 1.0

    @property
    def launch_slowdown(self) -> float:
        """The mean step as measured over the one without launch delays; infinite if it has nothing else."""
        measured = float(self.measured_steps.mean())
        if not self.step:
            return inf if measured else 1.0
        return measured / self.step

    @cached_property
    def by_operation(self) -> Mapping[str, float]:
        """The slowdown that operations of each name cause alone; a send and its receive have one name."""
        names = dict.fromkeys(JOINT_NAMES.get(name, name) for name in TYPES if name in self.usual)
        return {name: self.only(types(*types_called(name))) for name in names}

    def step_times(self, durations: Durations) -> Floats:
        """Seconds of each step, in the order of ``steps``."""
        ends = [part.solver.ends(took) for part, took in zip(self.parts, durations, strict=True)]
        return self._by_step([_last(part, end) for part, end in zip(self.parts, ends, strict=True)])

    def mean(self, durations: Durations) -> float:
        """Seconds of the mean step."""
        return float(self.step_times(durations).mean())

    def mixed(self, own: Selection) -> Durations:
        """Operations of *own* at their own durations, all others at the ideal ones."""
        return tuple(
            np.where(own(part.structure)[:, None], mine, ideal)
            for part, mine, ideal in zip(self.parts, self.own, self.ideal, strict=True)
        )

    def only(self, own: Selection) -> float:
        """The slowdown that operations of *own* cause alone."""
        return self.mean(self.mixed(own)) / self.ideal_step if self.ideal_step else 1.0

    def without(self, mended: Selection) -> float:
        """Seconds of the mean step once operations of *mended* take the ideal time."""
        return self.mean(self.mixed(lambda structure: ~mended(structure)))

    def share(self, seconds: float) -> float:
        """The part of the slowdown that is gone in a mean step of *seconds*; 0 where there is no slowdown."""
        lost = self.step - self.ideal_step
        return (self.step - seconds) / lost if lost else 0.0

    def _by_step(self, times: Sequence[Floats]) -> Floats:
        of_step = {step: t for part, some in zip(self.parts, times, strict=True)
                   for step, t in zip(part.steps, some.tolist(), strict=True)}  # fmt: skip
        return np.array([of_step[step] for step in self.steps])


def types(*names: str) -> Selection:
    """Operations of some types."""
    numbers = [NUMBER[name] for name in names]
    return lambda structure: np.isin(structure.type, numbers)


def _own(table: OperationTable, part: AlikeSteps) -> Floats:
    """What is an operation's own: of a communication, its end less the latest start in its meeting."""
    start, duration, structure = table.start[part.rows], table.duration[part.rows], part.structure
    latest = np.full((len(structure.meetings), len(part.steps)), -np.inf)
    np.maximum.at(latest, structure.meeting, start)
    transfer = np.maximum(start + duration - latest[structure.meeting], 0.0)
    return np.where(types(*COMPUTE_TYPES)(structure)[:, None], duration, transfer)


def _usual(parts: Sequence[AlikeSteps], own: Durations) -> dict[str, float]:
    """Of every type of compute the mean, of every type of communication the median."""
    out = {}
    for name, number in NUMBER.items():
        some = [mine[part.structure.type == number].ravel() for part, mine in zip(parts, own, strict=True)]
        every = np.concatenate(some)
        if len(every):
            out[name] = float(every.mean() if name in COMPUTE_TYPES else np.median(every))
    return out


def _last(part: AlikeSteps, ends: Floats) -> Floats:
    """When each step is over: with its last update, or, without one, with its last operation."""
    updates = part.structure.type == NUMBER[UPDATE]
    last: Floats = (ends[updates] if updates.any() else ends).max(axis=0)
    return last
