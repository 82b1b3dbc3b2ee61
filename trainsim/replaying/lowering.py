"""From an order to programs: kernels with given times, messages that take ``p2p`` and share nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Instruction, Kernel, Program, Send, Signal, Task, Template, Wait
from trainsim.contracts.system import Communicator, Ints, Pattern, System
from trainsim.replaying.mail import Step
from trainsim.replaying.times import Times
from trainsim.schedules import Work
from trainsim.schedules.cells import Cell
from trainsim.schedules.messages import MessageBatch
from trainsim.schedules.orders import Cells, Order

CHAIN = "compute"
ANYTHING = "pp"
"""What messages carry: activations or gradients, over one communicator."""


def lower(order: Order, times: Times, rows: Sequence[Sequence[Step]] | None = None, iterations: int = 1) -> System:
    """Everything that takes part in *iterations* of *order*, one after the other without a barrier.

    Iteration k does microbatches ``k * order.microbatches`` and on. Nothing is shared: there are no resources.
    *rows* has cells and exchanges where messages block (None: they do not). Every cell and exchange is one kernel.
    """
    lowering = _Lowering(order, times, blocking=rows is not None)
    programs = tuple(
        Program(chains={CHAIN: tuple(lowering.tasks(rank, (rows or order.rows)[rank], iterations))}, stage=rank)
        for rank in range(order.ranks)
    )
    nobody = np.full(order.ranks, -1, np.int64)
    return System(
        programs=programs,
        program_of=np.arange(order.ranks, dtype=np.int64),
        slow=np.ones(order.ranks),
        communicators={
            Messages(ANYTHING, d): _pairs(order.ranks, d, 0.0 if rows else times.p2p)
            for d in sorted(lowering.distances)
        },
        resources=0,
        sm=nobody,
        hbm=nobody,
        owner=np.zeros(0, np.int64),
    )


class _Lowering:
    """Templates by what is done; ``distances`` collects how far messages go, in ranks."""

    def __init__(self, order: Order, times: Times, blocking: bool):
        self.order, self.times, self.blocking = order, times, blocking
        self.distances: set[int] = set()
        self._templates: dict[object, Template] = {}

    def tasks(self, rank: int, row: Sequence[Step], iterations: int) -> Iterator[Task]:
        """What *rank* does. A pair is one kernel; what its backward hands on is a task of its own."""
        for k in range(iterations):
            shift = k * self.order.microbatches
            for step in row:
                if isinstance(step, MessageBatch):
                    yield Task(self._exchange(rank, step), k)
                    continue
                first, *second = step
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

    def _exchange(self, rank: int, exchange: MessageBatch) -> Template:
        """Tell every peer that the message is posted, wait until it is posted there, and let it take its time.

        All messages of an exchange start when both sides are there and take equally long: the last one ends it.
        """
        key = rank, exchange
        if key not in self._templates:
            tells = [self._tell(rank, self.order.rank_of[m.target], f"the send of {m}") for m in exchange.sends]
            tells += [self._tell(rank, self.order.rank_of[m.stage], f"the receive of {m}") for m in exchange.receives]
            waits = [Wait(f"the receive of {m}") for m in exchange.sends]
            waits += [Wait(f"the send of {m}") for m in exchange.receives]
            took = Kernel("exchange", "pp", self.times.p2p, sm=0.0, stream="pp")
            self._templates[key] = Template("exchange", rank, (*tells, *waits, took))
        return self._templates[key]

    def _tell(self, rank: int, peer: int, event: str) -> Instruction:
        self.distances.add(peer - rank)
        return Send(event, "pp", Messages(ANYTHING, peer - rank), 0.0, event)

    def _kernel(self, cells: Cells) -> Kernel:
        name = "+".join(f"{cell.stage}{cell.work}" for cell in cells)
        kind = "forward" if cells[0].work is Work.F else "backward"
        return Kernel(name, kind, self.times.of(cells), sm=0.0)

    def _needs(self, cell: Cell, microbatch: int | None = None) -> Iterator[Instruction]:
        before, after = self.order.precedes(cell.stage), self.order.follows(cell.stage)
        if cell.work is Work.F and before is not None and not self._by_exchange(before, cell.stage):
            yield Wait(f"{cell.stage}F", microbatch)
        if cell.work in (Work.B, Work.I) and after is not None and not self._by_exchange(after, cell.stage):
            yield Wait(f"{cell.stage}B", microbatch)

    def _gives(self, cell: Cell) -> Iterator[Instruction]:
        before, after = self.order.precedes(cell.stage), self.order.follows(cell.stage)
        if cell.work is Work.F and after is not None and not self._by_exchange(cell.stage, after):
            yield self._message(cell.stage, after, f"{after}F")
        if cell.work in (Work.B, Work.I) and before is not None and not self._by_exchange(cell.stage, before):
            yield self._message(cell.stage, before, f"{before}B")

    def _by_exchange(self, source: int, target: int) -> bool:
        return self.blocking and self.order.rank_of[source] != self.order.rank_of[target]

    def _message(self, source: int, target: int, event: str) -> Instruction:
        distance = self.order.rank_of[target] - self.order.rank_of[source]
        if distance == 0:
            return Signal(event)
        self.distances.add(distance)
        return Send(event, "pp", Messages(ANYTHING, distance), 0.0, event)


def _pairs(ranks: int, distance: int, seconds: float) -> Communicator:
    """Every rank to the one *distance* further; a message takes *seconds*, whatever else is under way."""
    sender = np.arange(ranks, dtype=np.int64)
    target = sender + distance
    there = (target >= 0) & (target < ranks)
    groups = int(there.sum())
    sends, receives = np.full(ranks, -1, np.int64), np.full(ranks, -1, np.int64)
    sends[sender[there]] = receives[target[there]] = np.arange(groups)
    per_group, none = np.ones(groups), np.zeros(0, np.int64)
    pattern = Pattern(
        factor=0.0 * per_group,
        bandwidth=per_group,
        latency=seconds * per_group,
        ramp=0.0 * per_group,
        chain=0.0 * per_group,
        chain_bytes=0.0 * per_group,
        use_group=none,
        use_resource=none,
        use_amount=np.zeros(0),
        use_hold=np.zeros(0, bool),
    )
    labels: tuple[Ints, ...] = (sends, receives)
    return Communicator(group_of=labels, groups=groups, patterns={"send": pattern})
