"""Cuts a stretch out of the compiled tasks of a class, and finds what stands for each operation in a rehearsal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trainsim.contracts.instructions import Columns
from trainsim.contracts.record import COMPUTE
from trainsim.engine.actor import Actor
from trainsim.engine.chain import Chain, Compiled
from trainsim.engine.course import Operations
from trainsim.engine.flags import Flags
from trainsim.engine.joint import Joint
from trainsim.engine.rehearsal import Lineup, Room, Tap, Tasks, Until
from trainsim.engine.running_operations import Await, Post, Sending, Set
from trainsim.engine.stretches import Stretch

Need = tuple[Await, int]
"""A wait for an event that others set, and its microbatch, counted from that of the stretch."""


class Snippet:
    """One stretch, cut out of the compiled tasks of a class; ``lineup`` is None if it cannot be rehearsed.

    It begins with operation ``first`` of its first task and ends before ``last`` of its last one: as little as has all
    that concerns the chains that follow, and the kernels next to that.
    """

    def __init__(self, room: Room, actor: Actor, stretch: Stretch, chains: dict[str, Chain]):
        self.room, self.actor = room, actor
        self.needs: list[Need] = []
        self.leaves: list[tuple[Flags, int]] = []
        self.patient = True
        self._taps: list[Tap] = []
        self._untils = [Until(room.clock)]
        begin = int(stretch.first[0])
        tasks = chains[COMPUTE].tasks.part(begin, stretch.tasks)
        self._base = tasks[0][1]
        own, *beside = stretch.once(actor.program.columns).values()
        posted = [some.templates[k].posted for some in beside for k in np.unique(some.template).tolist()]
        self._asked = {wait.event for some in posted for wait in some.waits}
        self._told = {signal.event for some in posted for signal in some.signals}
        self.first, self.last = self._begins(tasks[0][0]), self._ends(tasks[-1][0])
        compute = self._compute(tasks, self._room_tasks(own))
        others = [self._counted(self._room_tasks(some)) for some in beside]
        self.lineup: Lineup | None = None
        self.groups: set[int] = set()
        if compute is not None:
            compute[0][0].insert(0, self._untils[0])
            compute[-1][0].append(end := Tap(room.clock, None))
            chains_of = [compute, *others]
            self.lineup = Lineup(chains_of, self._untils, self._taps, end)
            self.groups = {operation.group for operation in _flat(chains_of) if isinstance(operation, Post)}
            self._leave(chains_of)

    def _room_tasks(self, columns: Columns) -> Tasks:
        course = self.room.operations(self.actor, columns)
        return course.part(0, len(course))

    @property
    def shared(self) -> bool:
        """Whether members of groups can go through it together: none does what others see before all have met."""
        if self.lineup is None or not self.patient:
            return False
        compute, *others = self.lineup.chains
        follow = all(isinstance(operation, Post | Await | Set) for operation in _flat(others))
        for operation in _flat([compute]):
            if isinstance(operation, Post) or (isinstance(operation, Await) and follow):
                return True
            if isinstance(operation, Tap) and operation.operation is not None:
                return False
        return False

    def _counted(self, tasks: Tasks) -> Tasks:
        return [(operations, microbatch - self._base) for operations, microbatch in tasks]

    def _begins(self, operations: Operations) -> int:
        first = next((k for k, operation in enumerate(operations) if self._inside(operation)), len(operations))
        while first and _takes_time(operations[first - 1]):
            first -= 1
        return first

    def _ends(self, operations: Operations) -> int:
        last = next((k + 1 for k in reversed(range(len(operations))) if self._inside(operations[k])), 0)
        while last < len(operations) and _takes_time(operations[last]):
            last += 1
        return last

    def _inside(self, operation: Compiled) -> bool:
        """Whether it concerns the chains that follow."""
        if isinstance(operation, Await):
            return operation.event in self._told
        return isinstance(operation, Set) and operation.event in self._asked

    def _compute(self, tasks: Tasks, doubles: Tasks) -> list[tuple[list[Compiled], int]] | None:
        """The operations of compute in a rehearsal, or nothing if one of them cannot be there."""
        out: list[tuple[list[Compiled], int]] = []
        for k, ((operations, microbatch), (doubled, _)) in enumerate(zip(tasks, doubles, strict=True)):
            some = slice(self.first if k == 0 else 0, self.last if k == len(tasks) - 1 else None)
            out.append(([], microbatch - self._base))
            if len(operations) != len(doubled):
                return None
            for operation, double in zip(operations[some], doubled[some], strict=True):
                stands_in = self._double(operation, double, microbatch - self._base)
                if stands_in is None:
                    return None
                out[-1][0].append(stands_in)
        return out

    def _double(self, operation: Compiled, double: Compiled, ahead: int) -> Compiled | None:
        """What stands for an operation in a rehearsal, if something can."""
        if isinstance(operation, Joint) or (isinstance(operation, Await | Set) and operation.microbatch is not None):
            return None
        if isinstance(operation, Await) and not self._inside(operation):
            self.patient = self.patient and not self._taps
            self.needs.append((operation, ahead))
            self._untils.append(Until(self.room.clock))
            return self._untils[-1]
        if isinstance(operation, Sending) or (isinstance(operation, Set) and not self._inside(operation)):
            if isinstance(operation, Sending) and operation.blocking:
                return None
            self._taps.append(Tap(self.room.clock, operation))
            return self._taps[-1]
        return double

    def _leave(self, chains: Sequence[Tasks]) -> None:
        """Events that are set and nobody in the stretch waits for."""
        every = [(operation, ahead) for tasks in chains for operations, ahead in tasks for operation in operations]
        heard = {(operation.event, ahead) for operation, ahead in every if isinstance(operation, Await)}
        told = {(operation.event, ahead) for operation, ahead in every if isinstance(operation, Set)}
        self.leaves = [(self.actor.event(event), ahead) for event, ahead in sorted(told - heard)]


def _takes_time(operation: Compiled) -> bool:
    return not isinstance(operation, Await | Set | Sending)


def _flat(chains: Sequence[Tasks]) -> Iterable[Compiled]:
    return (operation for tasks in chains for operations, _ in tasks for operation in operations)
