"""From an order to programs: kernels with given times, messages that take ``p2p`` and share nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainsim.program.instructions import Instruction, Kernel, Program, Send, Signal, Task, Template, Wait
from trainsim.replay.order import Cells, Order
from trainsim.schedules import Work
from trainsim.schedules.cells import Cell
from trainsim.system import Communicator, Ints, Pattern, System

CHAIN = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds (or any unit) of one chunk's passes, of a message, and of a pair that overlaps (None: the sum)."""

    forward: float
    input_gradient: float
    weight_gradient: float
    p2p: float
    overlapped: float | None

    def of(self, cells: Cells) -> float:
        """Time of one cell."""
        backward = self.input_gradient + self.weight_gradient
        alone = {
            Work.F: self.forward,
            Work.B: backward,
            Work.I: self.input_gradient,
            Work.W: self.weight_gradient,
        }
        if len(cells) == 2 and self.overlapped is not None:
            return self.overlapped
        return sum(alone[cell.work] for cell in cells)

    def scaled(self, scale: float) -> Times:
        """All times multiplied by *scale*."""
        return Times(
            forward=self.forward * scale,
            input_gradient=self.input_gradient * scale,
            weight_gradient=self.weight_gradient * scale,
            p2p=self.p2p * scale,
            overlapped=None if self.overlapped is None else self.overlapped * scale,
        )


def lower(order: Order, times: Times, iterations: int = 1) -> System:
    """Everything that takes part in *iterations* of *order*, one after the other without a barrier.

    Iteration k does microbatches ``k * order.microbatches`` and on. Nothing is shared: there are no resources.
    """
    lowering = _Lowering(order, times)
    programs = tuple(
        Program(chains={CHAIN: tuple(lowering.tasks(rank, iterations))}, stage=rank) for rank in range(order.ranks)
    )
    nobody = np.full(order.ranks, -1, np.int64)
    return System(
        programs=programs,
        program_of=np.arange(order.ranks, dtype=np.int64),
        slow=np.ones(order.ranks),
        communicators={_name(d): _messages(order.ranks, d, times.p2p) for d in sorted(lowering.distances)},
        resources=0,
        sm=nobody,
        hbm=nobody,
        owner=np.zeros(0, np.int64),
    )


class _Lowering:
    """Templates by what is done; ``distances`` collects how far messages go, in ranks."""

    def __init__(self, order: Order, times: Times):
        self.order, self.times = order, times
        self.distances: set[int] = set()
        self._templates: dict[object, Template] = {}

    def tasks(self, rank: int, iterations: int) -> Iterator[Task]:
        """What *rank* does. A pair is one kernel; what its backward hands on is a task of its own."""
        for k in range(iterations):
            shift = k * self.order.microbatches
            for cells in self.order.rows[rank]:
                first, *second = cells
                if second:
                    yield Task(self._pair(first, second[0], shift), first.microbatch + shift)
                    yield Task(self._hand_on(second[0]), second[0].microbatch + shift)
                else:
                    yield Task(self._one(first), first.microbatch + shift)

    def _one(self, cell: Cell) -> Template:
        key = cell.stage, cell.work
        if key not in self._templates:
            body = (*self._needs(cell), self._kernel((cell,)), *self._gives(cell))
            self._templates[key] = Template(str(cell.work), cell.stage, body)
        return self._templates[key]

    def _pair(self, forward: Cell, backward: Cell, shift: int) -> Template:
        waits = (*self._needs(forward), *self._needs(backward, backward.microbatch + shift))
        body = (*waits, self._kernel((forward, backward)), *self._gives(forward))
        return Template("OVERLAP_F_B", forward.stage, body)

    def _hand_on(self, cell: Cell) -> Template:
        key = cell.stage, "hand on"
        if key not in self._templates:
            self._templates[key] = Template("hand on", cell.stage, tuple(self._gives(cell)))
        return self._templates[key]

    def _kernel(self, cells: Cells) -> Kernel:
        name = "+".join(f"{cell.stage}{cell.work}" for cell in cells)
        kind = "forward" if cells[0].work is Work.F else "backward"
        return Kernel(name, kind, self.times.of(cells), sm=0.0)

    def _needs(self, cell: Cell, microbatch: int | None = None) -> Iterator[Instruction]:
        if cell.work is Work.F and cell.stage > 0:
            yield Wait(f"{cell.stage}F", microbatch)
        if cell.work in (Work.B, Work.I) and cell.stage < self.order.stages - 1:
            yield Wait(f"{cell.stage}B", microbatch)

    def _gives(self, cell: Cell) -> Iterator[Instruction]:
        if cell.work is Work.F and cell.stage < self.order.stages - 1:
            yield self._message(cell.stage, cell.stage + 1, f"{cell.stage + 1}F")
        if cell.work in (Work.B, Work.I) and cell.stage > 0:
            yield self._message(cell.stage, cell.stage - 1, f"{cell.stage - 1}B")

    def _message(self, source: int, target: int, event: str) -> Instruction:
        distance = self.order.rank_of[target] - self.order.rank_of[source]
        if distance == 0:
            return Signal(event)
        self.distances.add(distance)
        return Send(event, "pp", _name(distance), 0.0, event)


def _name(distance: int) -> str:
    return f"pp{distance:+d}"


def _messages(ranks: int, distance: int, seconds: float) -> Communicator:
    """Every rank to the one *distance* further; a message takes *seconds*, whatever else is under way."""
    sender = np.arange(ranks, dtype=np.int64)
    target = sender + distance
    there = (target >= 0) & (target < ranks)
    groups = int(there.sum())
    sends, receives = np.full(ranks, -1, np.int64), np.full(ranks, -1, np.int64)
    sends[sender[there]] = receives[target[there]] = np.arange(groups)
    one, none = np.ones(groups), np.zeros(0, np.int64)
    pattern = Pattern(
        factor=0.0 * one,
        bandwidth=one,
        latency=seconds * one,
        ramp=0.0 * one,
        use_group=none,
        use_resource=none,
        use_amount=np.zeros(0),
        use_hold=np.zeros(0, bool),
    )
    labels: tuple[Ints, ...] = (sends, receives)
    return Communicator(group_of=labels, groups=groups, patterns={"send": pattern})
