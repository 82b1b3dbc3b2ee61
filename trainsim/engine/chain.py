"""A thread of control of one rank class, as a SimPy process."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from trainsim.contracts.record import Record
from trainsim.engine.clock import Event

Cause = tuple[int, int]
"""(Number of a chain, row in it) whose end let something start."""


class Compiled(Protocol):
    """What a compiled template consists of. ``begin`` may return an event to wait for; then ``end`` gets its value."""

    def begin(self, chain: Chain, microbatch: int) -> Event | None: ...

    def end(self, chain: Chain, microbatch: int, value: Any) -> None: ...


class Chain:
    """What the operations of one chain share while it runs.

    ``cause`` is the row of somebody else whose end let this chain go on, until the next row takes it. ``waits`` is
    the last operation that had to wait for somebody, with its microbatch; ``tasks`` are compiled.
    """

    __slots__ = ("add", "cause", "name", "number", "over", "pending", "posted", "rank_class", "rows", "tasks", "waits")

    def __init__(self, number: int, rank_class: int, name: str):
        self.number, self.rank_class, self.name = number, rank_class, name
        self.rows = Record()
        self.add = self.rows.table.extend
        self.cause: Cause | None = None
        self.posted = 0.0
        self.pending: Any = None
        self.waits: tuple[Compiled, int] | None = None
        self.tasks: list[tuple[tuple[Compiled, ...], int]] = []
        self.over = False

    def record(self, run: int, microbatch: int, posted: float, start: float) -> None:
        """Append a row; it takes the pending cause, if there is one."""
        if self.cause is not None:
            self.rows.causes[len(self.rows)] = self.cause
            self.cause = None
        self.add((run, microbatch, posted, start))

    def because(self) -> Cause | None:
        """The row whose end is now: what this chain lets start now was caused by it."""
        if self.cause is not None:
            return self.cause
        rows = len(self.rows)
        return (self.number, rows - 1) if rows else None

    def process(self) -> Generator[Event, Any, None]:
        """Carry out all tasks; every ``yield`` is a wait that cannot be avoided."""
        done, rows = self.rows.tasks.append, self.rows
        for operations, microbatch in self.tasks:
            for operation in operations:
                event = operation.begin(self, microbatch)
                if event is not None:
                    operation.end(self, microbatch, (yield event))
            done(len(rows))
        self.over = True
