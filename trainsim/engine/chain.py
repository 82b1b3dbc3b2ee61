"""A thread of control of one rank class, which goes on from event to event."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from trainsim.contracts.record import Record
from trainsim.engine.clock import Event
from trainsim.engine.course import Course
from trainsim.engine.relative import Facts, Move, Reach, View

Cause = tuple[int, int]
"""(Number of a chain, row in it) whose end let something start."""


class Compiled(Protocol):
    """What a compiled template consists of. ``begin`` may return an event to wait for; then ``end`` gets its value.

    While *chain* waits, ``relative`` says what matters of that, and ``moved`` puts elsewhere what it keeps there.
    """

    def begin(self, chain: Chain, microbatch: int) -> Event | None: ...

    def end(self, chain: Chain, microbatch: int, value: Any) -> None: ...

    def reach(self) -> Reach: ...

    def relative(self, chain: Chain, view: View) -> Facts: ...

    def moved(self, chain: Chain, by: Move) -> None: ...


class Chain:
    """What the operations of one chain share while it runs.

    ``tasks`` are compiled; it is at operation ``at`` of task ``task``.
    ``cause`` is the row of somebody else whose end let this chain go on, until the next row takes it. ``waits`` is the
    last operation that had to wait for somebody, with its microbatch. ``passed`` is called when task ``mark`` begins.
    """

    __slots__ = (
        "add", "at", "cause", "mark", "name", "number", "passed", "pending", "posted", "rank_class", "rows",
        "task", "tasks", "waits",
    )  # fmt: skip

    def __init__(self, number: int, rank_class: int, name: str):
        self.number, self.rank_class, self.name = number, rank_class, name
        self.rows = Record()
        self.add = self.rows.table.extend
        self.cause: Cause | None = None
        self.posted = 0.0
        self.pending: Any = None
        self.waits: tuple[Compiled, int] | None = None
        self.tasks = Course.of([])
        self.task = self.at = 0
        self.mark = sys.maxsize
        self.passed: Callable[[], None] = lambda: None

    @property
    def over(self) -> bool:
        """Whether it has carried out all tasks."""
        return self.task == len(self.tasks)

    def record(self, run: int, microbatch: int, posted: float, start: float) -> None:
        """Append a row; it takes the pending cause, if there is one."""
        if self.cause is not None:
            self.rows.causes.extend((len(self.rows), *self.cause))
            self.cause = None
        self.add((run, microbatch, posted, start))

    def because(self) -> Cause | None:
        """The row whose end is now: what this chain lets start now was caused by it."""
        if self.cause is not None:
            return self.cause
        rows = len(self.rows)
        return (self.number, rows - 1) if rows else None

    def start(self, _: Event) -> None:
        """Carry out all tasks up to the first wait that cannot be avoided."""
        self._carry_out()

    def go_on(self, event: Event) -> None:
        """The same up to the next one: *event*, which it waited for, has happened.

        Where it is stands in ``task`` and ``at`` alone: somebody may move it while it waits.
        """
        operations, microbatch = self.tasks[self.task]
        operations[self.at].end(self, microbatch, event.value)
        self.at += 1
        self._carry_out()

    def _carry_out(self) -> None:
        tasks, rows = self.tasks, self.rows
        while self.task < len(tasks):
            operations, microbatch = tasks[self.task]
            while self.at < len(operations):
                event = operations[self.at].begin(self, microbatch)
                if event is not None:
                    event.callbacks.append(self.go_on)
                    return
                self.at += 1
            rows.tasks.append(len(rows))
            self.task += 1
            self.at = 0
            if self.task >= self.mark:
                self.passed()

    @property
    def chain(self) -> Chain:
        """Who waits where it waits."""
        return self

    @property
    def operation(self) -> Compiled:
        """What it is in the midst of."""
        return self.tasks[self.task][0][self.at]

    def relative(self, view: View) -> Facts:
        """Where it is in its task, and what it waits for there."""
        if self.over:
            return ()
        return self.at, self.operation, not self.rows, *self.operation.relative(self, view)

    def moved(self, by: Move) -> None:
        """Elsewhere, by as many tasks as *by* says, if it moves at all."""
        tasks = by.tasks.get(self, 0)
        if tasks:
            self.operation.moved(self, by)
            self.task += tasks
            self.posted += by.seconds
            self.cause = by.cause(self.cause)
            if self.waits is not None:
                self.waits = self.waits[0], self.waits[1] + by.microbatches
